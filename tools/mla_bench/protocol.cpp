#include "tools/mla_bench/protocol.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace ingot::bench {
namespace {

using nlohmann::json;

json parse(const std::string& frame) {
  json parsed = json::parse(frame, nullptr, false);
  if (!parsed.is_object()) {
    throw EngineError(ErrorCode::corrupt,
                      fmt::format("a frame between bench and measuring process: {}", frame));
  }
  return parsed;
}
template <class Build>
auto decoded(const std::string& frame, Build&& build) {
  const json value = parse(frame);
  try {
    return build(value);
  } catch (const json::exception& error) {
    throw EngineError(
        ErrorCode::corrupt,
        fmt::format("a frame between bench and measuring process: {}: {}", error.what(), frame));
  }
}

json to_json(const Timing& timing) {
  return {{"median", timing.median_us},
          {"min", timing.min_us},
          {"spread", timing.spread},
          {"replays", timing.replays},
          {"nodes", timing.nodes}};
}
Timing timing_of(const json& value) {
  return {.median_us = value.at("median"),
          .min_us = value.at("min"),
          .spread = value.at("spread"),
          .replays = value.at("replays"),
          .nodes = value.at("nodes")};
}

}  // namespace

std::string encode(const MlaQuestion& question) {
  return json{{"kind", static_cast<int>(question.kind)},
              {"cell", question.cell},
              {"layout", question.layout},
              {"candidate", question.candidate},
              {"thoroughly", question.thoroughly}}
      .dump();
}
MlaQuestion decode_question(const std::string& frame) {
  return decoded(frame, [](const json& value) {
    return MlaQuestion{.kind = static_cast<MlaQuestion::Kind>(value.at("kind").get<int>()),
                       .cell = value.at("cell"),
                       .layout = value.at("layout"),
                       .candidate = value.at("candidate"),
                       .thoroughly = value.at("thoroughly")};
  });
}

std::string encode(const MlaCard& card) {
  json curve = json::array();
  for (const ColdRead& point : card.curve)
    curve.push_back({point.bytes, point.us});
  return json{{"name", card.name}, {"empty_node_us", card.empty_node_us}, {"curve", curve}}.dump();
}
MlaCard decode_card(const std::string& frame) {
  return decoded(frame, [](const json& value) {
    MlaCard card{.name = value.at("name"),
                 .empty_node_us = value.at("empty_node_us").get<std::vector<double>>(),
                 .curve = {}};
    for (const json& point : value.at("curve"))
      card.curve.push_back({point.at(0), point.at(1)});
    return card;
  });
}

std::string encode_us(double us) {
  return json{{"us", us}}.dump();
}
double decode_us(const std::string& frame) {
  return decoded(frame, [](const json& value) { return value.at("us").get<double>(); });
}

std::string encode(const MlaOutcome& outcome) {
  json value{{"error", outcome.error},
             {"relative_error", outcome.relative_error},
             {"timing", to_json(outcome.timing)}};
  if (outcome.early) value["early"] = to_json(*outcome.early);
  return value.dump();
}
MlaOutcome decode_outcome(const std::string& frame) {
  return decoded(frame, [](const json& value) {
    MlaOutcome outcome{.error = value.at("error"),
                       .relative_error = value.at("relative_error"),
                       .timing = timing_of(value.at("timing")),
                       .early = std::nullopt};
    if (value.contains("early")) outcome.early = timing_of(value.at("early"));
    return outcome;
  });
}

}  // namespace ingot::bench
