#pragma once

#include <string>
#include <string_view>

namespace ingot {

/// A text in which a library that knows Unicode 14 (PCRE2 10.42) sees the categories of a newer
/// Unicode: characters assigned since, or moved to another category, are replaced by an older one
/// of the same category and the same length in bytes. For matching only: offsets are those of
/// `text`. Without it "🩷" (2022) would be no symbol, and be cut from its neighbours unlike in
/// training.
/// @param text UTF-8
/// @return `text` itself where nothing is to be replaced, else a copy in `storage`.
std::string_view with_unicode_14_categories(std::string_view text, std::string& storage);

}  // namespace ingot
