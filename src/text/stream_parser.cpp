#include "src/text/stream_parser.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/text/control_tokens.hpp"
#include "src/text/dsml_tags.hpp"
#include "src/text/json_value.hpp"

namespace ingot {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
/// What stands before a block of tool calls, and goes with it.
constexpr std::string_view kBlankLine = "\n\n";

/// The length of the longest end of `text` that `marker` begins with and that is not all of it.
std::size_t begun_at_end(std::string_view text, std::string_view marker) {
  for (std::size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n) {
    if (marker.starts_with(text.substr(text.size() - n))) return n;
  }
  return 0;
}

/// Whether more text could make `text` begin with `marker`.
bool may_become(std::string_view text, std::string_view marker) {
  return text.size() < marker.size() && marker.starts_with(text);
}

std::string_view without_space_at_end(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

/// What an error message shows of the model's text.
std::string shown(std::string_view text) {
  return text.size() <= 40 ? to_python_json(text)
                           : fmt::format("(a text of {} bytes)", text.size());
}

}  // namespace

StreamParser::StreamParser(bool thinking) : state_(thinking ? State::reasoning : State::content) {}

OutputDelta StreamParser::push(std::string_view text) {
  OutputDelta out;
  held_ += utf8_.push(text);
  run(out);
  return out;
}

OutputDelta StreamParser::finish() {
  OutputDelta out;
  held_ += utf8_.finish();
  run(out);
  switch (state_) {
    case State::reasoning:
      hand_on(out.reasoning, rest().size());
      break;
    case State::content:
    case State::verbatim:
      hand_on(out.content, rest().size());
      break;
    case State::tool_calls:
      if (any_call_ && place_ == Place::between_calls && may_become(rest(), dsml::kBlockClose)) {
        error_ = "the output ended before its block of tool calls was closed";
      } else {
        give_up("the output ended inside a tool call");
        hand_on(out.content, rest().size());
      }
      break;
    case State::after_tool_calls:  // white space
      break;
  }
  return out;
}

void StreamParser::run(OutputDelta& out) {
  bool more = true;
  while (more) {
    switch (state_) {
      case State::reasoning:
        more = step_reasoning(out);
        break;
      case State::content:
        more = step_content(out);
        break;
      case State::tool_calls:
        more = step_tool_calls(out);
        break;
      case State::after_tool_calls:
        more = step_after_tool_calls();
        break;
      case State::verbatim:
        hand_on(out.content, rest().size());
        more = false;
        break;
    }
  }
  held_.erase(0, unit_);
  at_ -= unit_;
  searched_ -= std::min(searched_, unit_);
  unit_ = 0;
}

bool StreamParser::step_reasoning(OutputDelta& out) {
  const std::size_t end = rest().find(control::kThinkEnd);
  if (end == std::string_view::npos) {
    hand_on(out.reasoning, rest().size() - begun_at_end(rest(), control::kThinkEnd));
    return false;
  }
  hand_on(out.reasoning, end);
  unit_ = at_ += control::kThinkEnd.size();
  state_ = State::content;
  return true;
}

bool StreamParser::step_content(OutputDelta& out) {
  if (!answer_begun_) {
    const std::size_t lines =
        std::min(rest().find_first_not_of('\n'), std::min(rest().size(), kBlankLine.size()));
    const std::string_view tag = rest().substr(lines);
    if (tag.starts_with(dsml::kBlockOpen)) {
      return open_block(at_, at_ + lines + dsml::kBlockOpen.size());
    }
    if (may_become(tag, dsml::kBlockOpen)) return false;
    answer_begun_ = true;
  }
  const std::string marker = std::string(kBlankLine) + std::string(dsml::kBlockOpen);
  const std::size_t begin = rest().find(marker);
  if (begin == std::string_view::npos) {
    hand_on(out.content, rest().size() - begun_at_end(rest(), marker));
    return false;
  }
  hand_on(out.content, begin);
  return open_block(at_, at_ + marker.size());
}

bool StreamParser::step_after_tool_calls() {
  at_ = std::min(held_.find_first_not_of(kSpace, at_), held_.size());
  if (at_ == held_.size()) return false;
  error_ = "text follows the block of tool calls";
  state_ = State::verbatim;
  at_ = unit_;
  return true;
}

bool StreamParser::step_tool_calls(OutputDelta& out) {
  switch (place_) {
    case Place::block_tag:
      return close_block_tag();
    case Place::between_calls:
      return read_between_calls();
    case Place::invoke_tag:
      return read_invoke_tag();
    case Place::in_call:
      return read_in_call(out);
    case Place::parameter:
      return read_parameter();
  }
  return false;
}

bool StreamParser::close_block_tag() {
  if (rest().empty()) return false;
  if (rest()[0] != '>') return give_up("its opening tag is not closed");
  enter(Place::between_calls, at_ + 1);
  return true;
}

bool StreamParser::read_between_calls() {
  skip_space();
  if (rest().starts_with(dsml::kInvokeOpen)) {
    call_ = {};
    parameters_.clear();
    enter(Place::invoke_tag, at_ + dsml::kInvokeOpen.size());
    return true;
  }
  if (rest().starts_with(dsml::kBlockClose)) {
    at_ += dsml::kBlockClose.size();
    unit_ = at_;
    state_ = State::after_tool_calls;
    return true;
  }
  if (may_become(rest(), dsml::kInvokeOpen) || may_become(rest(), dsml::kBlockClose)) return false;
  return give_up("neither a call nor the end of the block follows");
}

/// The tag ends where the first parameter or the end of the call begins, as for the official
/// parser: a name may hold anything else.
bool StreamParser::read_invoke_tag() {
  const std::size_t mark = find_new(control::kDsml);
  if (mark == std::string::npos) return false;
  const std::string_view before = std::string_view(held_).substr(at_, mark - at_);
  const std::string_view after = std::string_view(held_).substr(mark);
  const std::string_view parameter = dsml::kParameterOpen.substr(1);
  const std::string_view close = dsml::kInvokeClose.substr(2);
  const bool closes = before.ends_with("</");
  const std::string_view wanted = closes ? close : parameter;
  if ((!closes && !before.ends_with('<')) || !after.starts_with(wanted)) {
    if (may_become(after, wanted)) return false;
    searched_ = mark + control::kDsml.size();
    return true;
  }
  std::string_view tag = before.substr(0, before.size() - (closes ? 2 : 1));
  tag = without_space_at_end(tag);
  tag.remove_prefix(std::min(tag.find_first_not_of(kSpace), tag.size()));
  const std::string_view name = dsml::kName.substr(1);
  if (!tag.starts_with(name) || !tag.ends_with(dsml::kNameEnd) ||
      tag.size() < name.size() + dsml::kNameEnd.size()) {
    return give_up(fmt::format("a call has no name but {}", shown(tag)));
  }
  tag.remove_prefix(name.size());
  tag.remove_suffix(dsml::kNameEnd.size());
  call_.name = tag;
  call_.arguments = "{";
  enter(Place::in_call, mark - (closes ? 2 : 1));
  return true;
}

bool StreamParser::read_in_call(OutputDelta& out) {
  skip_space();
  if (rest().starts_with(dsml::kParameterOpen)) {
    enter(Place::parameter, at_ + dsml::kParameterOpen.size());
    return true;
  }
  if (rest().starts_with(dsml::kInvokeClose)) {
    call_.arguments += '}';
    out.tool_calls.push_back(std::move(call_));
    any_call_ = true;
    enter(Place::between_calls, at_ + dsml::kInvokeClose.size());
    unit_ = at_;
    return true;
  }
  if (may_become(rest(), dsml::kParameterOpen) || may_become(rest(), dsml::kInvokeClose)) {
    return false;
  }
  return give_up(
      fmt::format("neither a parameter nor the end of call {} follows", shown(call_.name)));
}

bool StreamParser::read_parameter() {
  const std::size_t end = find_new(dsml::kParameterClose);
  if (end == std::string::npos) return false;
  std::string_view text = std::string_view(held_).substr(at_, end - at_);
  const std::size_t string = text.find(dsml::kString);
  const std::size_t other = text.find(dsml::kNotString);
  const std::size_t name_end = std::min(string, other);
  if (!text.starts_with(dsml::kName) || name_end == std::string_view::npos ||
      name_end < dsml::kName.size()) {
    return give_up(
        fmt::format("a parameter of call {} has no name and string=", shown(call_.name)));
  }
  const bool is_string = string < other;
  std::string name(text.substr(dsml::kName.size(), name_end - dsml::kName.size()));
  const std::string_view value =
      text.substr(name_end + (is_string ? dsml::kString : dsml::kNotString).size());
  call_.arguments += parameters_.empty() ? "" : ", ";
  call_.arguments += to_python_json(name) + ": ";
  call_.arguments += is_string ? to_python_json(value) : std::string(value);
  if (!parameters_.insert(name).second) {
    return give_up(fmt::format("call {} has two parameters {}", shown(call_.name), shown(name)));
  }
  enter(Place::in_call, end + dsml::kParameterClose.size());
  return true;
}

void StreamParser::skip_space() {
  at_ = std::min(held_.find_first_not_of(kSpace, at_), held_.size());
}

void StreamParser::enter(Place place, std::size_t at) {
  place_ = place;
  at_ = searched_ = at;
}

/// Where `marker` begins in held_, at `searched_` or later. Text that was looked through is not
/// looked through again when more of it arrives.
std::size_t StreamParser::find_new(std::string_view marker) {
  const std::size_t found = held_.find(marker, searched_);
  if (found != std::string::npos) {
    searched_ = found;
  } else if (held_.size() >= marker.size()) {
    searched_ = std::max(searched_, held_.size() - marker.size() + 1);
  }
  return found;
}

void StreamParser::hand_on(std::string& to, std::size_t bytes) {
  to.append(held_, at_, bytes);
  at_ += bytes;
  unit_ = at_;
}

bool StreamParser::open_block(std::size_t begin, std::size_t end) {
  state_ = State::tool_calls;
  unit_ = begin;
  enter(Place::block_tag, end);
  return true;
}

bool StreamParser::give_up(std::string why) {
  error_ = "the block of tool calls was not understood: " + std::move(why);
  state_ = State::verbatim;
  at_ = unit_;
  return true;
}

}  // namespace ingot
