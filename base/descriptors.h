// File descriptors of this process: how many there may be, and how many are left.
//
// A connection costs one, and so does every file; a program that has none left can open nothing,
// not even its database. Threads: any.
#pragma once

#include <cstdint>

namespace tailor {

/// Raises the soft limit to the hard one. Returns the limit that then holds.
std::uint64_t raise_descriptor_limit();

/// The limit that holds now.
std::uint64_t descriptor_limit();

/// The lowest descriptor that is free: at least so many are in use. `descriptor_limit()` when none
/// is left.
std::uint64_t lowest_free_descriptor();

}  // namespace tailor
