// The database. Columns of runs, legs, instances, volumes, snapshots and switches are the fields
// that fleet/types.h visits, in that order (a test compares). Add to the end of the list; never
// edit a step that was released.
#include "server/core.h"

namespace anychip::server {
namespace {

constexpr const char* kPeople = R"sql(
CREATE TABLE accounts(
  id TEXT PRIMARY KEY, name TEXT NOT NULL, credit_micros INTEGER NOT NULL, created_at INTEGER NOT NULL
) STRICT;
CREATE TABLE projects(
  id TEXT PRIMARY KEY, account_id TEXT NOT NULL REFERENCES accounts(id), name TEXT NOT NULL
) STRICT;
CREATE INDEX projects_of_account ON projects(account_id);
CREATE TABLE tokens(
  token_hash TEXT PRIMARY KEY, account_id TEXT NOT NULL, project_id TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
CREATE TABLE idempotency(
  scope TEXT NOT NULL, idempotency_key TEXT NOT NULL, request_hash TEXT NOT NULL,
  status INTEGER NOT NULL, body TEXT NOT NULL, created_at INTEGER NOT NULL,
  PRIMARY KEY(scope, idempotency_key)
) STRICT;
CREATE TABLE workdirs(
  digest TEXT NOT NULL, project_id TEXT NOT NULL, bytes INTEGER NOT NULL, files TEXT NOT NULL,
  created_at INTEGER NOT NULL, PRIMARY KEY(digest, project_id)
) STRICT;
)sql";

constexpr const char* kNodes = R"sql(
CREATE TABLE nodes(
  id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, key_hash TEXT NOT NULL UNIQUE,
  state TEXT NOT NULL, boot_id TEXT NOT NULL, sequence INTEGER NOT NULL,
  last_seen_at INTEGER NOT NULL, ready_since INTEGER NOT NULL, enrolled_at INTEGER NOT NULL,
  desired_version INTEGER NOT NULL, applied_version INTEGER NOT NULL,
  pool_bytes INTEGER NOT NULL, pool_free_bytes INTEGER NOT NULL, instant_snapshot INTEGER NOT NULL
) STRICT;
CREATE TABLE node_boots(
  node_id TEXT NOT NULL, boot_id TEXT NOT NULL, PRIMARY KEY(node_id, boot_id)
) STRICT;
CREATE TABLE devices(
  node_id TEXT NOT NULL, id TEXT NOT NULL, chip TEXT NOT NULL, is_healthy INTEGER NOT NULL,
  note TEXT NOT NULL, PRIMARY KEY(node_id, id)
) STRICT;
CREATE TABLE device_leases(
  node_id TEXT NOT NULL, device_id TEXT NOT NULL, instance_id TEXT NOT NULL,
  PRIMARY KEY(node_id, device_id)
) STRICT;
CREATE TABLE node_images(
  node_id TEXT NOT NULL, image TEXT NOT NULL, variant TEXT NOT NULL, digest TEXT NOT NULL,
  is_ready INTEGER NOT NULL, progress_percent INTEGER NOT NULL, progress_text TEXT NOT NULL,
  error TEXT NOT NULL, PRIMARY KEY(node_id, image, variant)
) STRICT;
)sql";

constexpr const char* kRuns = R"sql(
CREATE TABLE runs(
  id TEXT PRIMARY KEY, project_id TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL,
  state_reason TEXT NOT NULL, template_id TEXT NOT NULL, image TEXT NOT NULL, command TEXT NOT NULL,
  environment TEXT NOT NULL, workdir_digest TEXT NOT NULL, memory_bytes INTEGER NOT NULL,
  system_disk_bytes INTEGER NOT NULL, checkpoint_bytes INTEGER NOT NULL, restarts INTEGER NOT NULL,
  restarts_max INTEGER NOT NULL, stop_at_step INTEGER, reference_of TEXT, instance_id TEXT,
  restart_cause TEXT NOT NULL, stop_cause TEXT NOT NULL, created_at INTEGER NOT NULL,
  state_at INTEGER NOT NULL, started_at INTEGER, ended_at INTEGER, deleted_at INTEGER,
  exit_code INTEGER
) STRICT;
CREATE UNIQUE INDEX runs_by_name ON runs(project_id, name) WHERE deleted_at IS NULL;
CREATE INDEX runs_by_state ON runs(state);
CREATE TABLE legs(
  id TEXT PRIMARY KEY, run_id TEXT NOT NULL, leg_index INTEGER NOT NULL, chip TEXT NOT NULL,
  back_end TEXT NOT NULL, count INTEGER NOT NULL, price_micros_per_hour INTEGER NOT NULL,
  is_simulated INTEGER NOT NULL, image TEXT NOT NULL, variant TEXT NOT NULL, digest TEXT NOT NULL,
  instance_id TEXT, state TEXT NOT NULL, created_at INTEGER NOT NULL, started_at INTEGER,
  ended_at INTEGER, metered_us INTEGER NOT NULL, cost_micros INTEGER NOT NULL,
  is_voided INTEGER NOT NULL, end_reason TEXT NOT NULL, exit_code INTEGER, first_step INTEGER,
  last_step INTEGER, checkpoint_step INTEGER, steps INTEGER NOT NULL,
  fresh_steps INTEGER NOT NULL, loss_first REAL,
  loss_last REAL, t_first REAL, t_last REAL, executions INTEGER NOT NULL, compiles INTEGER NOT NULL,
  peak_memory_bytes INTEGER NOT NULL, memory_source TEXT NOT NULL, device TEXT NOT NULL,
  ended_event TEXT NOT NULL, error_reason TEXT NOT NULL, error_message TEXT NOT NULL,
  sample_prompt TEXT NOT NULL, sample_text TEXT NOT NULL, sample_step INTEGER,
  UNIQUE(run_id, leg_index)
) STRICT;
CREATE TABLE instances(
  id TEXT PRIMARY KEY, run_id TEXT NOT NULL, node_id TEXT NOT NULL, leg_id TEXT,
  generation INTEGER NOT NULL, chip TEXT NOT NULL, back_end TEXT NOT NULL, count INTEGER NOT NULL,
  price_micros_per_hour INTEGER NOT NULL, is_simulated INTEGER NOT NULL, image TEXT NOT NULL,
  variant TEXT NOT NULL, digest TEXT NOT NULL, device_ids TEXT NOT NULL,
  holds_devices INTEGER NOT NULL, system_disk TEXT, checkpoint_volume TEXT,
  attach_generation INTEGER NOT NULL, desired TEXT NOT NULL, stop_at_step INTEGER,
  created_at INTEGER NOT NULL, desired_at INTEGER NOT NULL, phase TEXT NOT NULL,
  phase_at INTEGER NOT NULL, reported_at INTEGER NOT NULL, exit_code INTEGER,
  is_oom INTEGER NOT NULL, is_supervisor_lost INTEGER NOT NULL, are_streams_sent INTEGER NOT NULL,
  ran_us INTEGER NOT NULL, stop_seen_ran_us INTEGER, stop_cap_us INTEGER,
  memory_peak_bytes INTEGER NOT NULL, cpu_time_us INTEGER NOT NULL, error_reason TEXT NOT NULL,
  error_message TEXT NOT NULL, is_closed INTEGER NOT NULL
) STRICT;
CREATE INDEX instances_of_run ON instances(run_id);
CREATE INDEX instances_open ON instances(node_id) WHERE is_closed = 0;
)sql";

constexpr const char* kDisks = R"sql(
CREATE TABLE volumes(
  id TEXT PRIMARY KEY, run_id TEXT NOT NULL, node_id TEXT NOT NULL, kind TEXT NOT NULL,
  size_bytes INTEGER NOT NULL, from_snapshot TEXT, is_wanted INTEGER NOT NULL, state TEXT NOT NULL,
  used_bytes INTEGER NOT NULL, attach_generation INTEGER NOT NULL, attached_to TEXT,
  error TEXT NOT NULL, created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX volumes_of_run ON volumes(run_id);
CREATE TABLE snapshots(
  id TEXT PRIMARY KEY, run_id TEXT NOT NULL, node_id TEXT NOT NULL, volume_id TEXT NOT NULL,
  is_wanted INTEGER NOT NULL, state TEXT NOT NULL, size_bytes INTEGER NOT NULL,
  freeze_us INTEGER NOT NULL, error TEXT NOT NULL, created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX snapshots_of_run ON snapshots(run_id);
CREATE TABLE switches(
  id TEXT PRIMARY KEY, run_id TEXT NOT NULL,
  from_chip TEXT NOT NULL, from_back_end TEXT NOT NULL, from_count INTEGER NOT NULL,
  from_price_micros_per_hour INTEGER NOT NULL, from_is_simulated INTEGER NOT NULL,
  from_image TEXT NOT NULL, from_variant TEXT NOT NULL, from_digest TEXT NOT NULL,
  to_chip TEXT NOT NULL, to_back_end TEXT NOT NULL, to_count INTEGER NOT NULL,
  to_price_micros_per_hour INTEGER NOT NULL, to_is_simulated INTEGER NOT NULL,
  to_image TEXT NOT NULL, to_variant TEXT NOT NULL, to_digest TEXT NOT NULL,
  state TEXT NOT NULL, step TEXT NOT NULL, reason TEXT NOT NULL, at_step INTEGER,
  verify_steps INTEGER NOT NULL, old_instance TEXT, target_instance TEXT, system_snapshot TEXT,
  checkpoint_snapshot TEXT, is_falling_back INTEGER NOT NULL, falls_to TEXT NOT NULL,
  stopped_at_step INTEGER, lost_steps INTEGER, down_time_ms INTEGER, created_at INTEGER NOT NULL,
  step_at INTEGER NOT NULL, ended_at INTEGER
) STRICT;
CREATE UNIQUE INDEX switch_active ON switches(run_id) WHERE state = 'active';
CREATE INDEX switches_of_run ON switches(run_id);
)sql";

constexpr const char* kStreams = R"sql(
CREATE TABLE events(
  run_id TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, kind TEXT NOT NULL,
  message TEXT NOT NULL, data TEXT NOT NULL, PRIMARY KEY(run_id, seq)
) STRICT;
CREATE TABLE streams(
  leg_id TEXT NOT NULL, stream TEXT NOT NULL, stored_bytes INTEGER NOT NULL, tail TEXT NOT NULL,
  PRIMARY KEY(leg_id, stream)
) STRICT;
CREATE TABLE log_chunks(
  leg_id TEXT NOT NULL, start INTEGER NOT NULL, data TEXT NOT NULL, PRIMARY KEY(leg_id, start)
) STRICT;
CREATE TABLE metrics(
  run_id TEXT NOT NULL, leg_index INTEGER NOT NULL, step INTEGER NOT NULL, loss REAL,
  step_s REAL, tokens_s REAL, t REAL, memory_bytes INTEGER,
  PRIMARY KEY(run_id, step, leg_index)
) STRICT;
CREATE INDEX metrics_of_leg ON metrics(run_id, leg_index, step);
)sql";

}  // namespace

const store::Migrations& migrations() {
  static const store::Migrations list = {
      std::string(kPeople) + kNodes + kRuns + kDisks + kStreams,
  };
  return list;
}

}  // namespace anychip::server
