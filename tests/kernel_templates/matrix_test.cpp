// Compiles the families with NVRTC for one card of every kind, and holds them against the committed
// tables of resources. A family that differs from its table: every candidate. Another NVRTC than
// the table's: the defaults and the ends of every axis. Neither: the defaults, and the table
// vouches for the ends. INGOT_TEST_MATRIX=all, or the stems of some families with commas between
// (tools/test --matrix[=…]), compiles all of those and rewrites their tables.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <thread>

#include "kernel_templates/family.hpp"
#include "runtime/jit/arch.hpp"
#include "runtime/jit/compile_job.hpp"
#include "runtime/jit/compile_pool.hpp"
#include "tests/kernel_templates/resource_table.hpp"
#include "tests/support/libraries.hpp"

using namespace ingot;

namespace {

constexpr const char* kMatrixArchs[] = {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"};

struct Unit {
  std::string arch;
  jit::Variant variant;
  bool is_default = false;
  bool must_not_spill = false;  ///< the default and the ends of the axes

  std::string name() const { return arch + " " + jit::describe(variant); }
};

/// Everything that the matrix may compile of one family, each once.
std::vector<Unit> units_of(const kernels::Family& family) {
  std::map<std::string, Unit> units;
  for (const char* arch : kMatrixArchs) {
    const auto limits = value_or_throw(cu::limits_of_arch(arch));
    if (!family.runs_on(limits)) continue;
    for (const kernels::VariantSet& set : family.samples(limits)) {
      for (const auto& variant : set.candidates) {
        const Unit unit{arch, variant, false, false};
        units.emplace(unit.name(), unit);
      }
      for (const auto& variant : set.extremes) {
        Unit unit{arch, variant, variant == set.extremes.front(), true};
        const auto known = units.find(unit.name());
        unit.is_default |= known != units.end() && known->second.is_default;
        units.insert_or_assign(unit.name(), unit);
      }
    }
  }
  std::vector<Unit> all;
  for (auto& [name, unit] : units)
    all.push_back(std::move(unit));
  return all;
}

std::string digest_of_family(const jit::SourceBundle& bundle, const std::vector<Unit>& units) {
  std::string text = bundle.digest.hex();
  for (const auto& option : jit::canonical_options())
    text += option + '\n';
  for (const Unit& unit : units)
    text += unit.name() + '\n';
  return digest_of(text).hex();
}

/// Compiles `units` side by side; results in the order of `units`.
std::vector<Result<jit::CompiledKernel>> compile_all(jit::CompilePool& compiler,
                                                     const jit::SourceBundle& bundle,
                                                     const std::vector<Unit>& units) {
  std::vector<Result<jit::CompiledKernel>> results(units.size(),
                                                   fail(ErrorCode::compile_failed, "not compiled"));
  std::atomic<std::size_t> next = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < compiler.jobs(); ++i) {
    threads.emplace_back([&] {
      for (std::size_t at = next++; at < units.size(); at = next++) {
        results[at] = compiler.compile(jit::make_job(bundle, units[at].variant, units[at].arch));
      }
    });
  }
  threads.clear();  // joins
  return results;
}

}  // namespace

TEST_CASE("the default and the axis ends of every family compile without spills",
          "[cpu][jit][nvrtc][matrix]") {
  const auto nvrtc = test::nvrtc_or_skip();
  if (!nvrtc) return;
  auto compiler = jit::CompilePool::with_nvrtc(
      nvrtc->files(), static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  const std::string identity = compiler.identity().version + " " + compiler.identity().build;
  const char* const chosen = std::getenv("INGOT_TEST_MATRIX");
  const bool rewrite = chosen != nullptr;
  const auto tree = kernels::embedded_templates();

  for (const kernels::Family& family : kernels::families()) {
    if (rewrite && std::string_view(chosen) != "all" &&
        fmt::format(",{},", chosen).find(fmt::format(",{},", family.stem)) == std::string::npos) {
      continue;
    }
    const auto bundle = value_or_throw(tree.bundle(jit::template_name(family.stem)));
    std::vector<Unit> units = units_of(family);
    const auto path = test::resource_table_path(family.stem);
    const auto committed = test::ResourceTable::read(path);
    const std::string digest = digest_of_family(bundle, units);
    const bool changed = committed.digest != digest;
    const bool same_compiler = committed.compiler == identity;
    if (!rewrite && !changed) {
      std::erase_if(units, [](const Unit& unit) { return !unit.must_not_spill; });
      if (same_compiler) {
        for (const Unit& unit : units) {
          CAPTURE(unit.name());
          REQUIRE(committed.rows.contains(unit.name()));
          CHECK_FALSE(committed.rows.at(unit.name()).resources.spills());
        }
        std::erase_if(units, [](const Unit& unit) { return !unit.is_default; });
      }
    }
    const auto results = compile_all(compiler, bundle, units);

    test::ResourceTable table{.digest = digest, .compiler = identity, .rows = {}};
    int spilling = 0;
    for (std::size_t i = 0; i < units.size(); ++i) {
      const std::string name = units[i].name();
      CAPTURE(name);
      if (!results[i]) FAIL(results[i].error().message + "\n" + results[i].error().log);
      const jit::Resources& resources = results[i]->resources;
      table.rows[name] = {resources, results[i]->seconds};
      if (units[i].must_not_spill) CHECK_FALSE(resources.spills());
      if (resources.spills()) ++spilling;
      if (!rewrite && !changed && same_compiler) {
        CHECK(committed.rows.at(name).resources == resources);
      }
    }
    fmt::print("matrix: {}: {} variants compiled, {} of them spill{}\n", family.stem, units.size(),
               spilling,
               !rewrite && changed
                   ? "; the family differs from its table: rewrite it with tools/test --matrix"
                   : "");
    if (rewrite) table.write(path);
  }
}
