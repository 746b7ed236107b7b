// The space of a sweep file.
#include "coordinator/search/space.h"
#include "sweep/candidate.h"

namespace tailor::search {

std::shared_ptr<const Space> Space::of(std::shared_ptr<const sweep::Spec> spec) {
  LookAt look = [spec](const sweep::Point& point) {
    Look out;
    auto candidate = sweep::resolve(*spec, sweep::point_name(point), point);
    out.feasible = candidate.has_value();
    if (candidate) {
      out.hash = candidate->hash;
    } else {
      out.reason = candidate.error().message();
    }
    return out;
  };
  return std::make_shared<const Space>(spec->space, std::move(look));
}

}  // namespace tailor::search
