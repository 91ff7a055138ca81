#include "agent/converge.h"

#include <algorithm>

namespace anychip::agent {
namespace {

std::string workdir_key(const std::string& digest) { return "workdir " + digest; }

Error error_of(Code code, std::string reason, std::string message) {
  return Error{code, std::move(reason), std::move(message), {}, {}};
}

}  // namespace

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::kPreparing: return "preparing";
    case Phase::kPrepared: return "prepared";
    case Phase::kStarting: return "starting";
    case Phase::kRunning: return "running";
    case Phase::kExited: return "exited";
    case Phase::kFailed: return "failed";
    case Phase::kGone: return "gone";
  }
  return "failed";
}

const ContainerSeen* find_container(const Inventory& inventory, const InstanceId& instance) {
  for (const ContainerSeen& seen : inventory.containers) {
    if (seen.instance == instance) return &seen;
  }
  return nullptr;
}

const VolumeSeen* find_volume(const Inventory& inventory, const VolumeId& volume) {
  for (const VolumeSeen& seen : inventory.volumes) {
    if (seen.volume == volume) return &seen;
  }
  return nullptr;
}

const SnapshotSeen* find_snapshot(const Inventory& inventory, const SnapshotId& snapshot) {
  for (const SnapshotSeen& seen : inventory.snapshots) {
    if (seen.snapshot == snapshot) return &seen;
  }
  return nullptr;
}

std::string image_key(std::string_view image, std::string_view variant) {
  return "image " + std::string(image) + "/" + std::string(variant);
}
std::string key_of(const VolumeId& volume) { return "volume " + volume.text; }
std::string key_of(const SnapshotId& snapshot) { return "snapshot " + snapshot.text; }
std::string key_of(const InstanceId& instance) { return "instance " + instance.text; }

void Converger::observe(const Inventory& inventory) {
  const MonoTime now = parts_.clock.mono_now();
  for (const ContainerSeen& seen : inventory.containers) {
    const Record* known = records_.find(seen.instance);
    if (known == nullptr || known->generation > seen.generation) continue;
    Record record = *known;
    record.is_started = true;
    // A proved removal and a container cannot both be: what is there counts.
    record.is_removed = false;
    if (seen.phase == ContainerPhase::kExited) record.last = numbers_of(seen, now);
    records_.put(seen.instance, record);
  }
}

void Converger::converge(const Desired& desired, const Inventory& inventory, bool is_ours) {
  if (!is_ours) return;
  std::set<std::string> keys;
  for (const WantedInstance& wanted : desired.instances) {
    const Record* known = records_.find(wanted.spec.instance);
    if (known == nullptr || known->generation < wanted.spec.generation) {
      records_.put(wanted.spec.instance, Record{.leg_id = wanted.leg_id,
                                                .generation = wanted.spec.generation,
                                                .seen_version = desired.version,
                                                .stop_seen_ran_us = {},
                                                .last = {},
                                                .failed_reason = {},
                                                .failed_message = {}});
    }
    keys.insert(image_key(wanted.spec.image, wanted.spec.variant));
    keys.insert(workdir_key(wanted.spec.workdir_digest));
  }
  for (const WantedImage& wanted : desired.images) keys.insert(image_key(wanted.image, wanted.variant));
  for (const WantedVolume& wanted : desired.volumes) keys.insert(key_of(wanted.volume.volume));
  for (const WantedSnapshot& wanted : desired.snapshots) keys.insert(key_of(wanted.snapshot.snapshot));
  for (const auto& [id, record] : records_.all()) keys.insert(key_of(id));
  for (const ContainerSeen& seen : inventory.containers) keys.insert(key_of(seen.instance));
  operations_.retain(keys);

  converge_images(desired, inventory);
  converge_snapshots(desired, inventory);
  converge_volumes(desired, inventory);
  for (const WantedInstance& wanted : desired.instances) {
    converge_instance(wanted, desired, inventory);
  }
  converge_orphans(desired, inventory);
}

void Converger::converge_images(const Desired& desired, const Inventory& inventory) {
  for (const WantedImage& wanted : desired.images) {
    ensure_image(wanted.image, wanted.variant, wanted.digest, inventory);
  }
}

void Converger::converge_snapshots(const Desired& desired, const Inventory& inventory) {
  for (const WantedSnapshot& wanted : desired.snapshots) {
    const std::string key = key_of(wanted.snapshot.snapshot);
    const bool is_there = find_snapshot(inventory, wanted.snapshot.snapshot) != nullptr;
    if (!wanted.is_gone) {
      const bool has_source = find_volume(inventory, wanted.snapshot.volume) != nullptr;
      if (is_there || operations_.is_given_up(key, "take")) continue;
      if (has_source) {
        operations_.begin(key, "take", wanted.snapshot);
      } else if (operations_.may_try(key, "take")) {
        operations_.note_failure(key, "take",
                                 error_of(Code::kFailedPrecondition, "volume_missing",
                                          "volume " + wanted.snapshot.volume.text +
                                              " is not on this node"));
      }
      continue;
    }
    const bool is_source = std::any_of(
        desired.volumes.begin(), desired.volumes.end(), [&](const WantedVolume& volume) {
          return !volume.is_gone && volume.volume.from_snapshot == wanted.snapshot.snapshot &&
                 find_volume(inventory, volume.volume.volume) == nullptr;
        });
    if (is_there && !is_source) operations_.begin(key, "remove", RemoveSnapshot{wanted.snapshot.snapshot});
  }
}

void Converger::converge_volumes(const Desired& desired, const Inventory& inventory) {
  for (const WantedVolume& wanted : desired.volumes) {
    if (!wanted.is_gone) {
      ensure_volume(wanted, inventory);
      continue;
    }
    const VolumeSeen* seen = find_volume(inventory, wanted.volume.volume);
    if (seen == nullptr || !seen->attached_to.empty()) continue;
    if (is_needed(wanted.volume.volume, desired)) continue;
    const bool has_snapshot_due = std::any_of(
        desired.snapshots.begin(), desired.snapshots.end(), [&](const WantedSnapshot& snapshot) {
          return !snapshot.is_gone && snapshot.snapshot.volume == wanted.volume.volume &&
                 find_snapshot(inventory, snapshot.snapshot.snapshot) == nullptr &&
                 !operations_.is_given_up(key_of(snapshot.snapshot.snapshot), "take");
        });
    if (has_snapshot_due) continue;
    operations_.begin(key_of(wanted.volume.volume), "remove", RemoveVolume{wanted.volume.volume});
  }
}

// By an instance that is not yet proved gone.
bool Converger::is_needed(const VolumeId& volume, const Desired& desired) const {
  return std::any_of(
      desired.instances.begin(), desired.instances.end(), [&](const WantedInstance& wanted) {
        const Record* record = records_.find(wanted.spec.instance);
        if (wanted.want == Want::kGone && record != nullptr && record->is_removed) return false;
        if (wanted.spec.system_disk == volume) return true;
        return std::any_of(wanted.spec.volumes.begin(), wanted.spec.volumes.end(),
                           [&](const VolumeMount& mount) { return mount.volume == volume; });
      });
}

Converger::Step Converger::ensure_image(const std::string& image, const std::string& variant,
                                        const std::string& digest, const Inventory& inventory) {
  for (const ImageSeen& seen : inventory.images) {
    if (seen.image == image && seen.variant == variant && seen.digest == digest && seen.is_ready) {
      return {};
    }
  }
  const std::string key = image_key(image, variant);
  operations_.begin(key, "ensure", EnsureImage{image, variant, digest});
  Step step{.readiness = Readiness::kWaiting, .error = {}};
  if (const Error* error = operations_.failure(key, "ensure")) step.error = *error;
  if (operations_.is_given_up(key, "ensure")) step.readiness = Readiness::kGivenUp;
  return step;
}

Converger::Step Converger::ensure_volume(const WantedVolume& wanted, const Inventory& inventory) {
  if (find_volume(inventory, wanted.volume.volume) != nullptr) return {};
  const std::string key = key_of(wanted.volume.volume);
  Step step{.readiness = Readiness::kWaiting, .error = {}};
  const SnapshotId& source = wanted.volume.from_snapshot;
  const bool has_source = source.empty() || find_snapshot(inventory, source) != nullptr;
  if (has_source && !operations_.is_given_up(key, "ensure")) {
    operations_.begin(key, "ensure", wanted.volume);
  }
  if (const Error* error = operations_.failure(key, "ensure")) step.error = *error;
  if (operations_.is_given_up(key, "ensure")) step.readiness = Readiness::kGivenUp;
  return step;
}

Converger::Step Converger::ensure_workdir(const std::string& digest) {
  if (digest.empty() || parts_.files.has_workdir(digest)) return {};
  const std::string key = workdir_key(digest);
  Step step{.readiness = Readiness::kWaiting, .error = {}};
  if (const Error* error = operations_.failure(key, "fetch")) step.error = *error;
  if (operations_.is_given_up(key, "fetch")) {
    step.readiness = Readiness::kGivenUp;
  } else if (operations_.may_try(key, "fetch")) {
    fetcher_.fetch_workdir(digest);
  }
  return step;
}

Converger::Step Converger::ensure_disks(const ContainerSpec& spec, const Desired& desired,
                                        const Inventory& inventory) {
  std::vector<VolumeId> needed;
  if (!spec.system_disk.empty()) needed.push_back(spec.system_disk);
  for (const VolumeMount& mount : spec.volumes) needed.push_back(mount.volume);
  Step all;
  for (const VolumeId& volume : needed) {
    const auto wanted =
        std::find_if(desired.volumes.begin(), desired.volumes.end(),
                     [&](const WantedVolume& one) { return one.volume.volume == volume; });
    const VolumeSeen* seen = find_volume(inventory, volume);
    if (seen == nullptr && (wanted == desired.volumes.end() || wanted->is_gone)) {
      return {Readiness::kWaiting, error_of(Code::kFailedPrecondition, "volume_missing",
                                            "volume " + volume.text + " is not on this node")};
    }
    if (seen == nullptr) {
      const Step step = ensure_volume(*wanted, inventory);
      if (step.readiness == Readiness::kGivenUp) return step;
      if (step.readiness == Readiness::kWaiting) all = step;
    } else if (!seen->attached_to.empty() && seen->attached_to != spec.instance) {
      all = {Readiness::kWaiting,
             error_of(Code::kFailedPrecondition, "volume_in_use",
                      "volume " + volume.text + " is attached to " + seen->attached_to.text)};
    }
  }
  return all;
}

Converger::Step Converger::ensure_all(const WantedInstance& wanted, const Desired& desired,
                                      const Inventory& inventory) {
  const ContainerSpec& spec = wanted.spec;
  const Step image = ensure_image(spec.image, spec.variant, spec.digest, inventory);
  const Step workdir = ensure_workdir(spec.workdir_digest);
  Step disks;
  if (wanted.want == Want::kRun) disks = ensure_disks(spec, desired, inventory);
  const Step* const steps[] = {&image, &workdir, &disks};
  for (const Step* step : steps) {
    if (step->readiness == Readiness::kGivenUp) return *step;
  }
  for (const Step* step : steps) {
    if (step->readiness == Readiness::kWaiting) return *step;
  }
  return {};
}

}  // namespace anychip::agent
