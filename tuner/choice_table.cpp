#include "tuner/choice_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace ingot {
namespace {

using Records = std::vector<const TuningRecord*>;

std::string families_of(const TuningRecord& record) {
  std::set<std::string> stems;  // whichever of them is the default
  for (const auto& family : record.key.families)
    stems.insert(family.stem);
  std::string text;
  for (const std::string& stem : stems)
    text += (text.empty() ? "" : " or ") + stem;
  return text;
}

/// Names in the order in which they first come, of those that have more than one value.
class Varying {
 public:
  void add(const std::string& name, std::int64_t value) {
    const auto [at, is_new] = values_.try_emplace(name);
    if (is_new) order_.push_back(name);
    at->second.insert(value);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const std::string& name : order_)
      if (values_.at(name).size() > 1) names.push_back(name);
    return names;
  }

 private:
  std::vector<std::string> order_;
  std::map<std::string, std::set<std::int64_t>> values_;
};

template <class Values>
std::string cell(const Values& values, const std::string& name) {
  const auto found =
      std::find_if(values.begin(), values.end(), [&](const auto& one) { return one.name == name; });
  return found == values.end() ? "–" : std::to_string(found->value);
}

std::string table(Records records) {
  std::sort(records.begin(), records.end(), [](const TuningRecord* a, const TuningRecord* b) {
    const auto values = [](const TuningRecord* one) {
      std::vector<std::int64_t> all;
      for (const ProblemField& field : one->key.problem)
        all.push_back(field.value);
      return all;
    };
    return values(a) < values(b);
  });
  Varying fields, params;
  std::set<std::string> families;
  for (const TuningRecord* record : records) {
    for (const ProblemField& field : record->key.problem)
      fields.add(field.name, field.value);
    for (const CandidateRecord& candidate : record->candidates) {
      families.insert(candidate.variant.family);
      for (const jit::ParamValue& param : candidate.variant.params)
        params.add(param.name, param.value);
    }
  }
  std::vector<std::string> head = fields.names();
  // What the problem fixes is no choice.
  const std::vector<std::string> chosen = params.names();
  if (families.size() > 1) head.emplace_back("family");
  head.insert(head.end(), chosen.begin(), chosen.end());
  for (const char* name : {"µs", "spread", "gain", "ties"})
    head.emplace_back(name);
  std::string text = fmt::format("| {} |\n|", fmt::join(head, " | "));
  for (std::size_t i = 0; i < head.size(); ++i)
    text += "---|";
  text += "\n";
  for (const TuningRecord* record : records) {
    const CandidateRecord& choice = record->chosen();
    std::vector<std::string> row;
    for (const std::string& name : fields.names())
      row.push_back(cell(record->key.problem, name));
    if (families.size() > 1) row.push_back(choice.variant.family);
    for (const std::string& name : chosen)
      row.push_back(cell(choice.variant.params, name));
    const auto ties =
        std::count_if(record->candidates.begin(), record->candidates.end(),
                      [](const CandidateRecord& one) { return one.standing == Standing::tie; });
    row.push_back(fmt::format("{:.2f}", choice.time_us));
    row.push_back(fmt::format("{:.1f} %", 100 * choice.spread));
    row.push_back(fmt::format("{:.2f}", record->gain()));
    row.push_back(fmt::format("{}{}", ties, record->complete ? "" : " (cut short)"));
    text += fmt::format("| {} |\n", fmt::join(row, " | "));
  }
  return text;
}

}  // namespace

std::string choice_tables(std::span<const TuningRecord> records) {
  std::map<std::tuple<std::string, int, std::string>, std::map<std::string, Records>> groups;
  for (const TuningRecord& record : records) {
    groups[{record.key.device.name, record.key.tp_size, record.key.device.driver_branch}]
          [families_of(record)]
              .push_back(&record);
  }
  std::string text;
  for (const auto& [where, by_family] : groups) {
    const auto& [device, tp_size, driver] = where;
    text += fmt::format("{}## {}, TP {}, driver {}\n", text.empty() ? "" : "\n", device, tp_size,
                        driver);
    for (const auto& [families, of_family] : by_family)
      text += fmt::format("\n### {}\n\n{}", families, table(of_family));
  }
  return text;
}

}  // namespace ingot
