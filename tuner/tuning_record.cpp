#include "tuner/tuning_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "runtime/base/hash.hpp"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

// {"digest":"<32 digits>","record":{…}}\n — the digest is that of the bytes of {…}.
constexpr std::string_view kHead = R"({"digest":")";
constexpr std::string_view kMiddle = R"(","record":)";
constexpr std::string_view kTail = "}\n";
constexpr std::size_t kDigits = 32;

constexpr std::array<std::string_view, 6> kStandings{"chosen",  "tie",    "slower",
                                                     "dropped", "barred", "unmeasured"};

Json variant_json(const jit::Variant& variant) {
  Json params = Json::object();
  for (const jit::ParamValue& param : variant.params) {
    params[param.name] = param.type == "bool" ? Json(param.value != 0) : Json(param.value);
  }
  return {{"family", variant.family}, {"params", std::move(params)}};
}

/// Throws nlohmann's exceptions and EngineError(corrupt) for what encode_record does not write.
class RecordReader {
 public:
  explicit RecordReader(const Json& json) : json_(json) {}

  int schema() const { return json_.at("schema").get<int>(); }

  TuningRecord read() const {
    TuningRecord record;
    record.key = value_or_throw(TuningKey::parse(json_.at("key").get_ref<const std::string&>()));
    record.complete = json_.at("complete").get<bool>();
    record.noise = number(json_.at("noise"));
    for (const Json& candidate : json_.at("candidates"))
      record.candidates.push_back(read_candidate(candidate));
    for (const auto& [rule, count] : json_.at("rejections").items())
      record.rejections[rule] = count.get<int>();
    const auto chosen = std::count_if(
        record.candidates.begin(), record.candidates.end(),
        [](const CandidateRecord& candidate) { return candidate.standing == Standing::chosen; });
    if (chosen != 1) broken(fmt::format("{} candidates are chosen", chosen));
    return record;
  }

 private:
  [[noreturn]] static void broken(const std::string& why) {
    throw EngineError(ErrorCode::corrupt, why);
  }
  static double number(const Json& json) {
    if (!json.is_number() || json.get<double>() < 0) broken("a number is none, or negative");
    return json.get<double>();
  }

  static CandidateRecord read_candidate(const Json& json) {
    CandidateRecord candidate;
    candidate.variant.family = json.at("family").get<std::string>();
    for (const auto& [name, value] : json.at("params").items()) {
      if (value.is_boolean()) {
        candidate.variant.params.push_back({"bool", name, value.get<bool>() ? 1 : 0});
      } else if (value.is_number_integer()) {
        candidate.variant.params.push_back({"int", name, value.get<std::int64_t>()});
      } else {
        broken("a parameter is neither a whole number nor true or false");
      }
    }
    const auto& standing = json.at("standing").get_ref<const std::string&>();
    const auto found = std::find(kStandings.begin(), kStandings.end(), standing);
    if (found == kStandings.end()) broken("a candidate's standing is unknown");
    candidate.standing = static_cast<Standing>(found - kStandings.begin());
    candidate.reason = json.value("reason", "");
    candidate.time_us = number(json.at("time_us"));
    candidate.median_us = number(json.at("median_us"));
    candidate.spread = number(json.at("spread"));
    for (const Json& sample : json.at("samples_us"))
      candidate.samples_us.push_back(number(sample));
    return candidate;
  }

  const Json& json_;
};

Json candidate_json(const CandidateRecord& candidate) {
  Json json = variant_json(candidate.variant);
  json["standing"] = standing_name(candidate.standing);
  if (!candidate.reason.empty()) json["reason"] = candidate.reason;
  json["time_us"] = candidate.time_us;
  json["median_us"] = candidate.median_us;
  json["spread"] = candidate.spread;
  json["samples_us"] = candidate.samples_us;
  return json;
}

}  // namespace

std::string_view standing_name(Standing standing) {
  return kStandings[static_cast<std::size_t>(standing)];
}

const CandidateRecord& TuningRecord::chosen() const {
  return *std::find_if(candidates.begin(), candidates.end(), [](const CandidateRecord& candidate) {
    return candidate.standing == Standing::chosen;
  });
}

double TuningRecord::gain() const {
  const double before = candidates.front().time_us;
  const double after = chosen().time_us;
  return before > 0 && after > 0 ? before / after : 1;
}

std::string encode_record(const TuningRecord& record) {
  Json json;
  json["schema"] = record.key.schema;
  json["key"] = record.key.text();
  json["complete"] = record.complete;
  json["noise"] = record.noise;
  json["candidates"] = Json::array();
  for (const CandidateRecord& candidate : record.candidates)
    json["candidates"].push_back(candidate_json(candidate));
  json["rejections"] = Json::object();
  for (const auto& [rule, count] : record.rejections)
    json["rejections"][rule] = count;
  // A reason may hold a compiler's or a driver's words, in any encoding.
  const std::string body = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return fmt::format("{}{}{}{}{}", kHead, digest_of(body).hex(), kMiddle, body, kTail);
}

Result<TuningRecord> decode_record(std::string_view bytes, std::string_view origin) {
  const auto corrupt = [&](std::string_view why) {
    return fail(ErrorCode::corrupt, fmt::format("tuning record {}: {}", origin, why));
  };
  constexpr std::size_t kFrame = kHead.size() + kDigits + kMiddle.size() + kTail.size();
  if (bytes.size() < kFrame || !bytes.starts_with(kHead) || !bytes.ends_with(kTail) ||
      bytes.substr(kHead.size() + kDigits, kMiddle.size()) != kMiddle) {
    return corrupt("not a record, or cut off");
  }
  const std::string_view body = bytes.substr(kFrame - kTail.size(), bytes.size() - kFrame);
  if (digest_of(body).hex() != bytes.substr(kHead.size(), kDigits)) {
    return corrupt("its digest does not match its content");
  }
  try {
    const Json json = Json::parse(body);
    const RecordReader reader(json);
    if (const int schema = reader.schema(); schema != TuningKey::kSchema) {
      return fail(
          ErrorCode::unsupported,
          fmt::format("tuning record {}: its format is {}, this program's is {}: of another "
                      "version of ingot",
                      origin, schema, TuningKey::kSchema));
    }
    TuningRecord record = reader.read();
    if (record.key.schema != TuningKey::kSchema) return corrupt("its key has another format");
    return record;
  } catch (const EngineError& error) {
    return corrupt(error.error().message);
  } catch (const Json::exception& error) {
    return corrupt(fmt::format("no record's JSON ({})", error.what()));
  }
}

}  // namespace ingot
