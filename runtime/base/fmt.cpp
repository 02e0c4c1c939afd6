// The one translation unit that compiles {fmt}: Debian ships no static archive, and the binary must
// run where libfmt is not installed. Every other file sees declarations only.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
template FMT_API auto detail::thousands_sep_impl(detail::locale_ref)
    -> detail::thousands_sep_result<char>;
template FMT_API auto detail::decimal_point_impl(detail::locale_ref) -> char;
template FMT_API void detail::buffer<char>::append(const char*, const char*);
template FMT_API void detail::vformat_to(detail::buffer<char>&, string_view,
                                         basic_format_args<FMT_BUFFER_CONTEXT(char)>,
                                         detail::locale_ref);
FMT_END_NAMESPACE
