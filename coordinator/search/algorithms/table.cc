// The search algorithms by name. To add one: a file NAME.cc with its factory in proposer.h, and a
// line here; tests/coordinator/search then runs the shared suite over it.
#include <array>

#include "coordinator/search/proposer.h"

namespace tailor::search {

std::span<const AlgorithmEntry> algorithm_table() {
  static constexpr std::array kEntries = {
      AlgorithmEntry{"grid", make_grid_proposer, check_grid},
      AlgorithmEntry{"random", make_random_proposer, check_drawn},
      AlgorithmEntry{"sobol", make_sobol_proposer, check_drawn},
      AlgorithmEntry{"tpe", make_tpe_proposer, check_drawn},
      AlgorithmEntry{"gp", make_gp_proposer, check_drawn},
      AlgorithmEntry{"evolution", make_evolution_proposer, check_drawn},
      AlgorithmEntry{"nsga2", make_nsga2_proposer, check_drawn},
  };
  return kEntries;
}

std::vector<std::string_view> suggest_names() {
  std::vector<std::string_view> names;
  for (const AlgorithmEntry& entry : algorithm_table()) names.push_back(entry.name);
  return names;
}

}  // namespace tailor::search
