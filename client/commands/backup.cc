// tailor backup: a verified copy of the database while the coordinator runs.
#include <fmt/format.h>

#include "base/text.h"
#include "client/table.h"

namespace tailor::client {

void add_backup(CLI::App& app, Context& context) {
  auto path = std::make_shared<std::string>();
  CLI::App* command =
      add_command(app, "backup", "Copies the database, consistently, while everything runs.",
                  "  tailor backup /backups/tailor-monday.db");
  command->add_option("PATH", *path, "a new file on the coordinator's machine")->required();
  command->callback([&context, path] {
    v1::BackupRequest request;
    request.set_path(*path);
    if (!context.timeout_given) context.timeout_s = 3600;  // a large database takes its time
    v1::BackupResponse answer;
    try {
      answer = context.call<v1::BackupRequest, v1::BackupResponse>(
          &v1::CoordinatorService::Stub::Backup, request);
    } catch (const Failure& failure) {
      if (failure.exit_code() != Exit::kTimedOut) throw;
      throw Failure(
          Exit::kTimedOut,
          fmt::format("{}; it may still be copying: {} appears when it is whole and verified",
                      failure.what(), *path));
    }
    const Printer out = context.printer();
    if (out.json()) {
      Json json = to_json(answer);
      json["path"] = *path;
      return out.document(json);
    }
    out.line(fmt::format("{}: {} bytes, verified", *path,
                         with_thousands(static_cast<std::int64_t>(answer.bytes()))));
  });
}

}  // namespace tailor::client
