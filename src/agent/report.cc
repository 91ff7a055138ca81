#include "agent/report.h"

#include <set>

#include "base/json.h"

namespace anychip::agent {
namespace {

std::string text_of(const Error* error) {
  return error == nullptr ? std::string() : error->reason + ": " + error->message;
}

class Builder {
 public:
  explicit Builder(const ReportParts& parts) : parts_(parts), seen_(*parts.inventory) {}

  Report build() {
    json::object root{{"node_id", parts_.node_id},
                      {"boot_id", parts_.boot_id},
                      {"sequence", parts_.sequence},
                      {"protocol", 1},
                      {"applied_version", parts_.desired == nullptr ? 0 : parts_.desired->version},
                      {"pool_bytes", seen_.pool_bytes},
                      {"pool_free_bytes", seen_.pool_free_bytes},
                      {"instant_snapshot", seen_.has_instant_snapshot}};
    essence(parts_.node_id, parts_.desired == nullptr ? 0 : parts_.desired->version);
    root["devices"] = devices();
    root["images"] = images();
    root["volumes"] = volumes();
    root["snapshots"] = snapshots();
    root["instances"] = instances();
    return {json::serialize(root), std::move(essence_)};
  }

 private:
  void add(std::string_view text) {
    essence_ += text;
    essence_ += '\n';
  }
  void add(int64_t number) { add(std::to_string(number)); }
  template <class... Parts>
  void essence(const Parts&... parts) {
    (add(parts), ...);
  }

  json::array devices() {
    json::array list;
    for (const DeviceSeen& device : seen_.devices) {
      list.push_back(json::object{{"id", device.id},
                                  {"chip", device.chip},
                                  {"healthy", device.is_healthy},
                                  {"note", device.note}});
      essence(device.id, device.chip, device.is_healthy ? 1 : 0);
    }
    return list;
  }

  json::array images() {
    json::array list;
    std::set<std::string> listed;
    const auto push = [&](const ImageSeen& image) {
      const std::string key = image_key(image.image, image.variant);
      const Error* error = parts_.converger->operations().failure(key, "ensure");
      const std::string text = image.is_ready ? std::string() : text_of(error);
      list.push_back(json::object{{"image", image.image},
                                  {"variant", image.variant},
                                  {"digest", image.digest},
                                  {"ready", image.is_ready},
                                  {"progress_percent", image.progress_percent},
                                  {"progress_text", image.progress_text},
                                  {"error", text}});
      essence(key, image.digest, image.is_ready ? 1 : 0, image.progress_text, text);
      listed.insert(key + image.digest);
    };
    for (const ImageSeen& image : seen_.images) push(image);
    if (parts_.desired == nullptr) return list;
    for (const WantedImage& wanted : parts_.desired->images) {
      if (listed.contains(image_key(wanted.image, wanted.variant) + wanted.digest)) continue;
      push(ImageSeen{wanted.image, wanted.variant, wanted.digest, false, 0, "waiting"});
    }
    return list;
  }

  json::array volumes() {
    json::array list;
    for (const VolumeSeen& volume : seen_.volumes) {
      list.push_back(json::object{{"volume_id", volume.volume.text},
                                  {"state", "present"},
                                  {"used_bytes", volume.used_bytes},
                                  {"attached_to", optional(volume.attached_to.text)},
                                  {"attach_generation", volume.attach_generation},
                                  {"error", ""}});
      essence(volume.volume.text, volume.attached_to.text, volume.attach_generation);
    }
    if (parts_.desired == nullptr) return list;
    for (const WantedVolume& wanted : parts_.desired->volumes) {
      const VolumeId& id = wanted.volume.volume;
      if (find_volume(seen_, id) != nullptr) continue;
      const std::string_view state = absent_state(wanted.is_gone, key_of(id), "ensure");
      if (state.empty()) continue;
      const Error* error = parts_.converger->operations().failure(key_of(id), "ensure");
      list.push_back(json::object{{"volume_id", id.text},
                                  {"state", state},
                                  {"used_bytes", 0},
                                  {"attached_to", nullptr},
                                  {"attach_generation", 0},
                                  {"error", text_of(error)}});
      essence(id.text, state);
    }
    return list;
  }

  json::array snapshots() {
    json::array list;
    for (const SnapshotSeen& snapshot : seen_.snapshots) {
      list.push_back(json::object{{"snapshot_id", snapshot.snapshot.text},
                                  {"state", "ready"},
                                  {"size_bytes", snapshot.size_bytes},
                                  {"freeze_us", snapshot.freeze_us},
                                  {"error", ""}});
      essence(snapshot.snapshot.text);
    }
    if (parts_.desired == nullptr) return list;
    for (const WantedSnapshot& wanted : parts_.desired->snapshots) {
      const SnapshotId& id = wanted.snapshot.snapshot;
      if (find_snapshot(seen_, id) != nullptr) continue;
      const std::string_view state = absent_state(wanted.is_gone, key_of(id), "take");
      if (state.empty()) continue;
      const Error* error = parts_.converger->operations().failure(key_of(id), "take");
      list.push_back(json::object{{"snapshot_id", id.text},
                                  {"state", state},
                                  {"size_bytes", 0},
                                  {"freeze_us", 0},
                                  {"error", text_of(error)}});
      essence(id.text, state);
    }
    return list;
  }

  // Of an object that is not there: "gone" when it shall be gone (and nothing is making it right
  // now), "failed" when given up, "" = on its way.
  std::string_view absent_state(bool is_gone, const std::string& key, std::string_view verb) const {
    const Operations& operations = parts_.converger->operations();
    if (is_gone) return operations.is_busy(key) ? "" : "gone";
    return operations.is_given_up(key, verb) ? "failed" : "";
  }

  json::array instances() {
    std::set<InstanceId> ids;
    for (const auto& [id, record] : parts_.records->all()) ids.insert(id);
    for (const ContainerSeen& seen : seen_.containers) ids.insert(seen.instance);
    if (parts_.desired != nullptr) {
      for (const WantedInstance& wanted : parts_.desired->instances) ids.insert(wanted.spec.instance);
    }
    json::array list;
    for (const InstanceId& id : ids) list.push_back(instance(id));
    return list;
  }

  json::object instance(const InstanceId& id) {
    const WantedInstance* wanted = parts_.desired == nullptr ? nullptr : parts_.desired->find(id);
    const Record* record = parts_.records->find(id);
    const ContainerSeen* seen = find_container(seen_, id);
    const InstanceStatus status = parts_.converger->status(id, wanted, seen_);
    Numbers numbers;
    int64_t generation = wanted == nullptr ? 0 : wanted->spec.generation;
    if (record != nullptr) {
      generation = record->generation;
      if (record->last) numbers = *record->last;
      // It ran, it is not there, nobody saw its end: the exit code is unknown.
      else if (record->is_started) numbers.is_supervisor_lost = true;
    }
    if (seen != nullptr) {
      generation = seen->generation;
      numbers = numbers_of(*seen, parts_.now);
    }
    const bool is_shipped = parts_.is_shipped(id);
    json::object out{{"instance_id", id.text},
                     {"generation", generation},
                     {"phase", name_of(status.phase)},
                     {"exit_code", numbers.exit_code},
                     {"oom", numbers.is_oom},
                     {"supervisor_lost", numbers.is_supervisor_lost},
                     {"ran_us", numbers.ran_us},
                     {"stop_seen_ran_us", nullptr},
                     {"memory_peak_bytes", numbers.memory_peak_bytes},
                     {"cpu_time_us", numbers.cpu_time_us},
                     {"streams_complete", is_shipped},
                     {"error", nullptr}};
    if (record != nullptr && record->stop_seen_ran_us) {
      out["stop_seen_ran_us"] = *record->stop_seen_ran_us;
    }
    essence(id.text, name_of(status.phase), generation, is_shipped ? 1 : 0);
    if (status.error) {
      out["error"] = json::object{{"reason", status.error->reason}, {"message", status.error->message}};
      essence(status.error->reason);
    }
    return out;
  }

  static json::value optional(const std::string& text) {
    return text.empty() ? json::value(nullptr) : json::value(text);
  }

  const ReportParts& parts_;
  const Inventory& seen_;
  std::string essence_;
};

}  // namespace

Report make_report(const ReportParts& parts) { return Builder(parts).build(); }

}  // namespace anychip::agent
