#include "coordinator/core/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace tailor::core {

using nlohmann::json;

namespace {

/// Text from outside may hold bytes that are not UTF-8; they are replaced, never thrown over.
std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

tl::unexpected<Status> damaged(std::string_view what, std::string_view text) {
  return error(Code::kDataLoss,
               fmt::format("stored {} is damaged: '{}'", what, text.substr(0, 80)));
}

}  // namespace

std::string point_to_json(const sweep::Point& point) {
  json object = json::object();
  for (const auto& [path, value] : point) {
    std::visit([&](const auto& v) { object[path] = v; }, value);
  }
  return dump(object);
}

Result<sweep::Point> point_from_json(std::string_view text) {
  const auto object = parse_json(text);
  if (!object || !object->is_object()) return damaged("point", text);
  sweep::Point point;
  for (const auto& [path, value] : object->items()) {
    if (value.is_boolean()) {
      point[path] = value.get<bool>();
    } else if (value.is_number_integer()) {
      point[path] = value.get<std::int64_t>();
    } else if (value.is_number_float()) {
      point[path] = value.get<double>();
    } else if (value.is_string()) {
      point[path] = value.get<std::string>();
    } else {
      return damaged("point", text);
    }
  }
  return point;
}

std::string failures_to_json(const std::map<protocol::EndClass, std::int32_t>& failures) {
  json object = json::object();
  for (const auto& [end, count] : failures) {
    object[std::string(protocol::end_class_name(end))] = count;
  }
  return dump(object);
}

Result<std::map<protocol::EndClass, std::int32_t>> failures_from_json(std::string_view text) {
  std::map<protocol::EndClass, std::int32_t> failures;
  if (text.empty()) return failures;
  const auto object = parse_json(text);
  if (!object || !object->is_object()) return damaged("failure count", text);
  for (const auto& [name, count] : object->items()) {
    const auto end = protocol::parse_end_class(name);
    if (!end || !count.is_number_integer()) return damaged("failure count", text);
    failures[*end] = count.get<std::int32_t>();
  }
  return failures;
}

std::string reasons_to_json(const std::map<std::string, std::uint64_t>& reasons) {
  return reasons.empty() ? "" : dump(json(reasons));
}

Result<std::map<std::string, std::uint64_t>> reasons_from_json(std::string_view text) {
  std::map<std::string, std::uint64_t> reasons;
  if (text.empty()) return reasons;
  const Result<json> object = parse_json(text);
  if (!object || !object->is_object()) return damaged("count of reasons", text);
  for (const auto& [reason, count] : object->items()) {
    if (!count.is_number_unsigned()) return damaged("count of reasons", text);
    reasons[reason] = count.get<std::uint64_t>();
  }
  return reasons;
}

std::string slots_to_json(const std::vector<protocol::Slot>& slots) {
  json array = json::array();
  for (const protocol::Slot& slot : slots) {
    array.push_back({{"index", slot.index},
                     {"kind", slot.kind == protocol::DeviceKind::kGpu ? "gpu" : "cpu"},
                     {"name", slot.name},
                     {"memory_bytes", slot.memory_bytes},
                     {"threads", slot.threads}});
  }
  return dump(array);
}

Result<std::vector<protocol::Slot>> slots_from_json(std::string_view text) {
  const auto array = parse_json(text);
  if (!array || !array->is_array()) return damaged("list of slots", text);
  std::vector<protocol::Slot> slots;
  for (const json& item : *array) {
    const bool sound = item.is_object() && item.contains("index") &&
                       item["index"].is_number_unsigned() && item.contains("kind") &&
                       item["kind"].is_string() && item.contains("name") &&
                       item["name"].is_string() && item.contains("memory_bytes") &&
                       item["memory_bytes"].is_number_unsigned() && item.contains("threads") &&
                       item["threads"].is_number_integer();
    if (!sound) return damaged("list of slots", text);
    protocol::Slot slot;
    slot.index = item["index"].get<std::uint32_t>();
    slot.kind = item["kind"].get<std::string>() == "gpu" ? protocol::DeviceKind::kGpu
                                                         : protocol::DeviceKind::kCpu;
    slot.name = item["name"].get<std::string>();
    slot.memory_bytes = item["memory_bytes"].get<std::uint64_t>();
    slot.threads = item["threads"].get<std::int32_t>();
    slots.push_back(std::move(slot));
  }
  return slots;
}

std::string started_to_json(const protocol::StartedReport& started) {
  return dump({{"pid", started.pid},
               {"host", started.host},
               {"device", started.device},
               {"version", started.version},
               {"data_hash", started.data_hash},
               {"resumed_step", started.resumed_step},
               {"resumed_from", started.resumed_from},
               {"parameters_body", started.parameters_body},
               {"parameters_total", started.parameters_total},
               {"steps_total", started.steps_total}});
}

std::int64_t started_step(std::string_view text) {
  const auto object = parse_json(text);
  if (!object || !object->is_object()) return 0;
  const auto found = object->find("resumed_step");
  return found != object->end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

std::string started_data_hash(std::string_view text) {
  const auto object = parse_json(text);
  if (!object || !object->is_object()) return "";
  const auto found = object->find("data_hash");
  return found != object->end() && found->is_string() ? found->get<std::string>() : "";
}

std::string widths_json(const std::vector<shape::LayerWidths>& widths) {
  return dump(json(widths));
}

}  // namespace tailor::core
