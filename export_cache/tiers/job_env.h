// An environment for one RocksDB database, in which its background jobs run on threads that end before it
// does.
//
// RocksDB's own threads belong to the process: they stay when a database is closed, and a forked child, which
// inherits the records of their pool and not the threads, waits for them for ever.
#pragma once

#include <memory>

namespace rocksdb {
class Env;
}

namespace rekindle {

// Outlives the database that is opened with it. Its last owner waits for the threads.
std::shared_ptr<rocksdb::Env> make_job_env();

}  // namespace rekindle
