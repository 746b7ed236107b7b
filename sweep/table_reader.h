// Reads the keys of keys.h from TOML tables: nested ({ffn = {k = 4}}), dotted (ffn.k = 4) or quoted
// ("ffn.k" = 4), with the position of every mistake.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config.h"
#include "sweep/keys.h"
#include "sweep/spec.h"

namespace tailor::sweep {

using KeySink = std::function<void(const Key&, const ConfigValue&)>;

/// Hands every key of `keys` that `table` has to `sink`; `prefix` ("train.") is what the keys of
/// this table have in front. Keys that are not asked for here are left for the caller's
/// `table.finish()`; nested tables are finished. Mistakes are noted in the document.
void read_keys(ConfigTable& table, const std::string& prefix, std::span<const Key> keys,
               const KeySink& sink);

/// One value of the key's type and range, or nullopt with the mistake noted.
std::optional<AxisValue> read_value(const Key& key, const ConfigValue& value);

/// The keys that `value` sets, with their values: one as a rule, beta1 and beta2 for `betas`. Empty
/// with the mistake noted when something is wrong.
std::vector<std::pair<std::string_view, AxisValue>> read_values(const Key& key,
                                                                const ConfigValue& value);

/// As read_keys with read_values, into `point`.
void read_point(ConfigTable& table, const std::string& prefix, std::span<const Key> keys,
                Point* point);

/// The keys of [architecture], with `preset` filled in underneath,
/// and at most one of ffn.d_h and d_h_ratio.
void read_architecture(ConfigTable& table, Point* point);

}  // namespace tailor::sweep
