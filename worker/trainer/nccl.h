// NCCL for ranks on GPUs: the plugin's, found at run time, for this program does not link CUDA.
#pragma once

#include "model/train/ranks/group.h"

namespace tailor::trainer {

/// Tells c10d, by its environment variables, that neither its watchdog nor its monitor may end this
/// process when another rank is lost: they would abort it before the watch over the ranks has
/// said who is lost and rank 0 has reported the end. Call before other threads are started.
void leave_ends_to_the_watch();

/// Makes NCCL backends. REQUIRES, when it is called: open_device has loaded the plugin. Throws
/// c10::Error when the plugin was built without NCCL, or NCCL fails.
train::ranks::MakeBackend nccl_backend();

}  // namespace tailor::trainer
