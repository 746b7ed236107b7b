#include "model/eval/items.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"

namespace tailor::eval {
namespace {

using nlohmann::json;

/// An object of the file and how an error names its place: "FILE:12" or "FILE, item 12".
struct Placed {
  std::string place;
  json object;
};

tl::unexpected<Status> bad_item(std::string_view place, std::string_view what) {
  return error(Code::kInvalidArgument, fmt::format("{} {}", place, what));
}

Result<std::vector<Placed>> objects_of(const std::string& path, std::string_view text) {
  std::vector<Placed> objects;
  constexpr std::size_t kStartBytes = 4096;
  const std::string_view encoding = utf16_or_utf32(text.substr(0, kStartBytes));
  if (!encoding.empty()) {
    return bad_item(path,
                    fmt::format("is {} text, and UTF-8 is read: convert it with iconv -f {} -t "
                                "UTF-8",
                                encoding, encoding));
  }
  text = without_byte_order_mark(text);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != text.npos && text[first] == '[') {
    auto list = parse_json(text);
    if (!list)
      return bad_item(path, fmt::format("is not JSON in UTF-8: {}", list.error().message()));
    for (json& object : *list) {
      objects.push_back({fmt::format("{}, item {}:", path, objects.size() + 1), std::move(object)});
    }
  } else {
    std::size_t line = 0;
    for (const std::string_view content : split(text, '\n')) {
      ++line;
      if (trim(content).empty()) continue;
      const std::string place = fmt::format("{}:{}:", path, line);
      auto object = parse_json(content);
      if (!object) {
        return bad_item(place,
                        fmt::format("the line is not JSON in UTF-8: {}", object.error().message()));
      }
      objects.push_back({place, *std::move(object)});
    }
  }
  if (objects.empty()) return bad_item(path, "holds no items");
  for (const Placed& placed : objects) {
    if (!placed.object.is_object()) return bad_item(placed.place, "not an object");
  }
  return objects;
}

/// Fills in the labels that lie in a second file, if there is one.
Status add_labels(const std::string& path, std::vector<Placed>* objects) {
  const std::string stem = std::filesystem::path(path).replace_extension().string();
  for (const char* suffix : {"-labels.lst", ".labels.lst"}) {
    const std::string labels_path = stem + suffix;
    std::error_code ignored;
    if (!std::filesystem::exists(labels_path, ignored)) continue;
    TAILOR_ASSIGN_OR_RETURN(const std::string text, read_file(labels_path));
    std::vector<std::string> labels;
    for (const std::string_view line : split(without_byte_order_mark(text), '\n')) {
      if (!trim(line).empty()) labels.emplace_back(trim(line));
    }
    if (labels.size() != objects->size()) {
      return Status(Code::kInvalidArgument,
                    fmt::format("{} holds {} labels, but {} holds {} items", labels_path,
                                labels.size(), path, objects->size()));
    }
    for (std::size_t i = 0; i < labels.size(); ++i) (*objects)[i].object["label"] = labels[i];
    return Status::ok();
  }
  return Status::ok();
}

}  // namespace

Result<std::string> find_item_file(const Task& task, const std::string& folder) {
  std::string tried;
  for (const std::string_view name : task.files) {
    std::string path = fmt::format("{}/{}", folder, name);
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored)) return path;
    tried += fmt::format("{}{}", tried.empty() ? "" : ", ", name);
  }
  return error(Code::kNotFound,
               fmt::format("{} holds no file of {} ({}); tried {}. Or name it: --tasks {}=FILE",
                           folder, task.name, task.what, tried, task.name));
}

Result<ItemFile> read_items(const Task& task, const std::string& path, std::size_t limit) {
  TAILOR_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  TAILOR_ASSIGN_OR_RETURN(std::vector<Placed> objects, objects_of(path, text));
  if (!objects.front().object.contains("label")) {
    TAILOR_RETURN_IF_ERROR(add_labels(path, &objects));
  }
  ItemFile file;
  file.path = path;
  file.sha256 = sha256_hex(text);
  file.items_total = objects.size();
  std::unordered_map<std::string, std::string> places;  // of the ids so far
  for (const auto& [place, object] : objects) {
    auto item = task.item(object);
    if (!item) return error(item.error().with_context(place.substr(0, place.size() - 1)));
    if (item->choices.size() < 2) return bad_item(place, "fewer than two choices");
    if (item->id.empty()) item->id = std::to_string(file.items.size() + 1);
    const auto [earlier, is_new] = places.emplace(item->id, place);
    if (!is_new) {
      return bad_item(place, fmt::format("the id \"{}\" is that of {} too", item->id,
                                         earlier->second.substr(0, earlier->second.size() - 1)));
    }
    file.items.push_back(*std::move(item));
  }
  if (limit > 0 && file.items.size() > limit) file.items.resize(limit);
  return file;
}

}  // namespace tailor::eval
