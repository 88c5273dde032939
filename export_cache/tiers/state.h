// State: a small file beside the database with what its last commit was, so that lost commits are noticed and
// the size is known without opening the database.
//
//   stored := record(kind state, key = zero, raw = state)                 see export_cache/formats/record.h
//   state  := sequence:u64 note:u64
//
// It may be older than the database (it is written after each commit,
// without waiting for the disk), never newer.
#pragma once

#include <cstdint>
#include <string>

namespace rekindle {

struct State {
  std::uint64_t sequence = 0;  // Database::sequence after the commit
  std::uint64_t note = 0;      // TierWriter::note
};

// Zeros when the file is missing or unsound: nothing is known then.
State read_state(const std::string& path);
// Failures are logged at level debug: the next commit writes it again.
void write_state(const std::string& path, const State& state);

}  // namespace rekindle
