// No early stopping: every unit is trained to its budget, and no rung is judged.
#include "coordinator/scheduler/early_stopping/rule.h"

namespace tailor::scheduler {
namespace {

class NoRule final : public Rule {
 public:
  bool judges(const Field&, std::uint32_t, std::uint32_t) const override { return false; }
  bool waits() const override { return false; }
  std::vector<Decision> decide(const Field&) const override { return {}; }
};

}  // namespace

std::unique_ptr<Rule> make_none(const RuleSettings&) { return std::make_unique<NoRule>(); }

}  // namespace tailor::scheduler
