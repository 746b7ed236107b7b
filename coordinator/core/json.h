// The small JSON texts inside rows: points, failure counts, slots, the StartedReport.
// Internal to core/.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "protocol/messages.h"
#include "sweep/spec.h"

namespace tailor::core {

/// {"ffn.k":4,"train.optimizer.lr":0.003}; integers and floating numbers stay what they are.
std::string point_to_json(const sweep::Point& point);
/// Errors: kDataLoss.
Result<sweep::Point> point_from_json(std::string_view text);

/// {"node_lost":1,"oom":2}; "{}" when empty.
std::string failures_to_json(const std::map<protocol::EndClass, std::int32_t>& failures);
/// "" is empty. Errors: kDataLoss.
Result<std::map<protocol::EndClass, std::int32_t>> failures_from_json(std::string_view text);

/// Tried points that fell away, by reason: {"does not satisfy ...":7000}; "" when empty.
std::string reasons_to_json(const std::map<std::string, std::uint64_t>& reasons);
/// "" is empty. Errors: kDataLoss.
Result<std::map<std::string, std::uint64_t>> reasons_from_json(std::string_view text);

std::string slots_to_json(const std::vector<protocol::Slot>& slots);
/// Errors: kDataLoss.
Result<std::vector<protocol::Slot>> slots_from_json(std::string_view text);

std::string started_to_json(const protocol::StartedReport& started);
/// `resumed_step` of what started_to_json wrote; 0 when the text has none.
std::int64_t started_step(std::string_view text);
/// `data_hash` of it; "" when the text has none.
std::string started_data_hash(std::string_view text);

/// [[24,16],[16,8]]: hidden widths, a list a layer.
std::string widths_json(const std::vector<shape::LayerWidths>& widths);

}  // namespace tailor::core
