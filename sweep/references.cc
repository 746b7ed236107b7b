#include "sweep/references.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/hash.h"
#include "base/text.h"
#include "sweep/schedule_request.h"

namespace tailor::sweep {
namespace {

Status refused(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

/// The keys of `point` with uniform widths.
Point uniform_twin(const Point& point) {
  Point out;
  for (const auto& [path, value] : point) {
    if (!path.starts_with("schedule.")) out.emplace(path, value);
  }
  out.emplace("schedule.kind", std::string("uniform"));
  return out;
}

class Inserter {
 public:
  explicit Inserter(Spec& spec) : spec_(spec) {}

  std::optional<ReferenceError> run() {
    written_ = spec_.candidates.size();
    for (std::size_t i = 0; i < written_; ++i) {
      if (!asks_for_geometry(spec_.candidates[i].overrides)) continue;
      if (Status status = complete(i); !status.is_ok()) return ReferenceError{i, std::move(status)};
    }
    for (std::size_t i = 0; i < written_; ++i) {
      if (Status status = check_chain(i); !status.is_ok()) {
        return ReferenceError{i, std::move(status)};
      }
    }
    return std::nullopt;
  }

 private:
  Status complete(std::size_t index) {
    const NamedCandidate staged = spec_.candidates[index];
    TAILOR_ASSIGN_OR_RETURN(const ScheduleRequest request, request_of(staged.overrides));
    const std::uint64_t seed = reference_seed(spec_, request);
    if (std::count(spec_.seeds.begin(), spec_.seeds.end(), seed) == 0) {
      return refused(fmt::format("`schedule.seed` is {}; allowed: a seed of this sweep ({})", seed,
                                 fmt::join(spec_.seeds, ", ")));
    }
    std::string from = request.from;
    if (from.empty()) {
      TAILOR_ASSIGN_OR_RETURN(from, twin_of(staged, seed));
    } else {
      TAILOR_RETURN_IF_ERROR(check_from(staged.name, from));
    }
    for (std::int32_t i = 1; i <= request.iterate; ++i) {
      NamedCandidate step = staged;
      step.name = fmt::format("{}, iteration {}", staged.name, i);
      step.overrides["schedule.from"] = from;
      step.overrides.erase("schedule.iterate");
      step.seeds = {seed};
      step.inserted = true;
      if (find(step.name) != nullptr) return taken(step.name);
      from = step.name;
      spec_.candidates.push_back(std::move(step));
    }
    spec_.candidates[index].overrides["schedule.from"] = from;
    return Status::ok();
  }

  static Status taken(const std::string& name) {
    return refused(
        fmt::format("a candidate named \"{}\" is to be inserted for its schedule, but the "
                    "file has one of that name; give that another name",
                    name));
  }

  const NamedCandidate* find(const std::string& name) const {
    for (const NamedCandidate& candidate : spec_.candidates) {
      if (candidate.name == name) return &candidate;
    }
    return nullptr;
  }

  Status check_from(const std::string& name, const std::string& from) const {
    if (from == name) return refused("`schedule.from` is the candidate itself");
    std::vector<std::string_view> names;
    for (std::size_t i = 0; i < written_; ++i) names.push_back(spec_.candidates[i].name);
    if (std::find(names.begin(), names.end(), from) != names.end()) return Status::ok();
    const std::string near = nearest_name(from, names);
    return refused(fmt::format("`schedule.from` is \"{}\"{}; allowed: {}", from,
                               near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near),
                               fmt::join(names, ", ")));
  }

  /// The candidate with the staged one's keys and uniform widths; a new one if there is none.
  Result<std::string> twin_of(const NamedCandidate& staged, std::uint64_t seed) {
    NamedCandidate twin;
    twin.name = fmt::format("reference of {}", staged.name);
    twin.overrides = uniform_twin(staged.overrides);
    const auto resolved = resolve(spec_, twin.name, twin.overrides);
    if (!resolved) return error(resolved.error().with_context("its reference"));
    for (NamedCandidate& other : spec_.candidates) {
      if (asks_for_geometry(other.overrides)) continue;
      const auto known = resolve(spec_, other.name, other.overrides);
      if (!known || known->hash != resolved->hash) continue;
      if (other.inserted && std::count(other.seeds.begin(), other.seeds.end(), seed) == 0) {
        other.seeds.push_back(seed);
        std::sort(other.seeds.begin(), other.seeds.end());
      }
      return other.name;
    }
    if (find(twin.name) != nullptr) return error(taken(twin.name));
    twin.seeds = {seed};
    twin.inserted = true;
    spec_.candidates.push_back(twin);
    return twin.name;
  }

  Status check_chain(std::size_t index) const {
    std::set<std::string> seen;
    const NamedCandidate* at = &spec_.candidates[index];
    while (at != nullptr && asks_for_geometry(at->overrides)) {
      if (!seen.insert(at->name).second) {
        return refused(
            fmt::format("`schedule.from` leads back to \"{}\": it would be cut from its "
                        "own measurement",
                        at->name));
      }
      at = find(to_text(at->overrides.at("schedule.from")));
    }
    return Status::ok();
  }

  Spec& spec_;
  std::size_t written_ = 0;
};

}  // namespace

std::optional<ReferenceError> insert_references(Spec& spec) { return Inserter(spec).run(); }

std::vector<const NamedCandidate*> named_in_order(const Spec& spec) {
  std::set<std::string> references;
  for (const NamedCandidate& candidate : spec.candidates) {
    const auto from = candidate.overrides.find("schedule.from");
    if (from != candidate.overrides.end()) references.insert(to_text(from->second));
  }
  const auto rank = [&](const NamedCandidate& candidate) {
    if (!spec.baseline.empty() && candidate.name == spec.baseline) return 0;
    return references.contains(candidate.name) ? 1 : 2;
  };
  std::vector<const NamedCandidate*> out;
  for (int wanted = 0; wanted < 3; ++wanted) {
    for (const NamedCandidate& candidate : spec.candidates) {
      if (rank(candidate) == wanted) out.push_back(&candidate);
    }
  }
  return out;
}

protocol::GeometrySpec reference_geometry(const Spec& spec) {
  protocol::GeometrySpec out = spec.geometry;
  out.enabled = true;
  out.layers.clear();
  out.dimension = true;
  for (const NamedCandidate& candidate : spec.candidates) {
    const auto own = candidate.overrides.find("schedule.sub_mlps");
    if (own != candidate.overrides.end() && to_text(own->second) == "own") out.sub_blocks = true;
  }
  return out;
}

std::string measurement_key(const std::string& candidate_hash, const protocol::DataSpec& data,
                            std::uint64_t seed, const protocol::GeometrySpec& geometry) {
  return sha256_hex(fmt::format(
      "{}|{}:{}|{}:{}|{}|seed={}|layers={}|tokens={}|subsamples={}|rho={}|sub={}|dimension={}",
      candidate_hash, data.train.size(), data.train, data.validation.size(), data.validation,
      data.sequence_length, seed, fmt::join(geometry.layers, ","), geometry.tokens,
      geometry.subsamples, geometry.rho, geometry.sub_blocks, geometry.dimension));
}

const std::vector<std::uint64_t>& seeds_of(const Spec& spec, std::string_view candidate) {
  for (const NamedCandidate& named : spec.candidates) {
    if (named.inserted && named.name == candidate) return named.seeds;
  }
  return spec.seeds;
}

}  // namespace tailor::sweep
