#include "cli/help.h"

#include <fmt/format.h>

namespace anychip::cli {

namespace {

// Groups appear in the order of their first command.
constexpr CommandHelp kHelps[] = {
    {"up", "This machine", "start server and agent here", "在本机启动服务器与代理",
     "Checks what this machine must have, then starts server and agent as two processes of their "
     "own and waits until "
     "they are ready. The first start makes an account \"me\" with ¥10. Called again it says "
     "that all is up already, "
     "or starts what is missing.",
     "  anychip up\n  anychip up --port 8080 --pool-gib 40\n  ANYCHIP_DATA=/data/lab anychip up"},
    {"down", "This machine", "stop server and agent, or remove one run",
     "停止服务器与代理，或删除一个运行",
     "Without a name it ends server and agent; running containers go on and are found again by "
     "the next `up`. With "
     "--all every container, mount and loop device of this data folder goes too. With a run's "
     "name it stops that run "
     "and deletes it with its disks and logs.",
     "  anychip down\n  anychip down --all && rm -rf \"$ANYCHIP_DATA\"\n  anychip down demo"},
    {"doctor", "This machine", "check what this machine must have, and how to get it",
     "检查本机所需条件及解决办法",
     "One line for each prerequisite, with the way out when it is missing. Changes nothing. Exit "
     "status 6 when "
     "something is missing.",
     "  anychip doctor\n  anychip doctor -o json"},
    {"account", "What there is", "show the account; make another", "查看账户；新建账户",
     "Shows the balance. `new NAME` makes an account with ¥10 (on the server's machine) and uses "
     "it from then on; "
     "`use NAME` goes back to an earlier one.",
     "  anychip account\n  anychip account new alice\n  anychip account use me"},
    {"offer", "What there is", "chips that can be had now, with price", "现在可租的芯片与价格",
     "One line per chip and node. Prices of simulated "
     "chips are the list prices of the chips they simulate.",
     "  anychip offer\n  anychip offer tpu-sim"},
    {"chip", "What there is", "every chip of the catalogue", "目录中的全部芯片",
     "Also chips that no node here has.", "  anychip chip\n  anychip chip h100-sxm -o json"},
    {"image", "What there is", "images and their variants", "镜像及其变体",
     "A variant serves one back end.", "  anychip image pytorch"},
    {"template", "What there is", "ready tasks", "现成的任务",
     "A template gives image, command, folder, chip and sizes.",
     "  anychip template\n  anychip template tang-poem-gpt -o json"},
    {"node", "What there is", "machines, their devices and images", "机器、设备与镜像", "",
     "  anychip node"},
    {"run", "Runs", "start a command on a chip", "在芯片上运行命令",
     "From a template, a task file (-f) or a command after `--`. Without a template the current "
     "folder (or --workdir) is "
     "packed by content, .gitignore respected, and becomes /workspace. The word after --backend "
     "in the command is "
     "replaced by the chip's back end, so the same command runs everywhere. Options win over the "
     "file.",
     "  anychip run --name demo --template tang-poem-gpt --chip cpu\n"
     "  anychip run --name mine --image pytorch --chip tpu-sim --watch -- python train.py "
     "--backend cpu\n"
     "  anychip run -f anychip.yaml --dry-run"},
    {"ps", "Runs", "list runs with state, step, loss and live cost",
     "列出运行：状态、步数、损失、实时费用", "--watch draws it anew each second.",
     "  anychip ps\n  anychip ps --watch\n  anychip ps --state running -o json"},
    {"show", "Runs", "everything about one run", "一个运行的全部信息",
     "Its state, command, cost and legs.", "  anychip show demo"},
    {"logs", "Runs", "what a run printed", "运行的输出",
     "-f follows until the run has ended, across switches.",
     "  anychip logs -f demo\n  anychip logs demo --leg 1"},
    {"metrics", "Runs", "loss, speed and memory by step", "每步的损失、速度与内存",
     "A step that was repeated shows its last leg.",
     "  anychip metrics demo --after-step 100 -o json"},
    {"events", "Runs", "what happened to a run, in words", "运行中发生的事",
     "-f follows until the run has ended.", "  anychip events -f demo"},
    {"wait", "Runs", "wait for a step, a state or the end", "等待某一步、某个状态或结束",
     "Exit status 0 when it is reached, 1 when the run ended otherwise, 9 when --timeout passed.",
     "  anychip wait demo --step 100 --timeout 10m\n  anychip wait demo --state finished"},
    {"stop", "Runs", "checkpoint and stop a run", "保存检查点并停止运行",
     "The command gets SIGTERM, writes its checkpoint and exits; disks stay.",
     "  anychip stop demo --wait"},
    {"switch", "Runs", "move a run to another chip; nothing is lost",
     "把运行切换到另一种芯片，不丢任何进度",
     "Prepares the new chip while the old one trains on, then checkpoint, snapshot, resume at "
     "the very next step, "
     "verify. If the new chip fails or the loss leaves its band, the run falls back by itself. "
     "With --wait the eight "
     "steps are shown as they happen.",
     "  anychip switch demo --to tpu-sim --wait\n  anychip switch demo --to ascend-910b:8 "
     "--at-step 500\n"
     "  anychip switch demo --cancel\n  anychip switch demo --list"},
    {"compare", "Runs", "speed, memory, cost and loss of each chip",
     "比较各芯片的速度、内存、费用与损失",
     "As a table, as JSON, or as one HTML file that needs no network. The loss is compared with "
     "--against RUN, else with "
     "the run that was started with --reference-of. --input renders a saved JSON again.",
     "  anychip compare demo\n  anychip compare demo --html demo.html\n  anychip compare demo -o "
     "json | jq .parity"},
    {"instance", "Runs", "rented chips with their disks", "租用的芯片及其磁盘", "",
     "  anychip instance list\n  anychip instance show ins_01jd..."},
    {"volume", "Runs", "disks", "磁盘", "", "  anychip volume"},
    {"snapshot", "Runs", "points of disks", "磁盘快照", "", "  anychip snapshot"},
    {"server", "Processes and shell", "the API server in the foreground (`up` starts it)",
     "前台运行 API 服务器（由 up 启动）", "", "  anychip server --port 8080"},
    {"agent", "Processes and shell", "the node's agent in the foreground (`up` starts it)",
     "前台运行节点代理（由 up 启动）", "", "  anychip agent"},
    {"completion", "Processes and shell", "completion for bash, zsh or fish",
     "bash、zsh、fish 的补全脚本", "",
     "  source <(anychip completion bash)\n  anychip completion fish > "
     "~/.config/fish/completions/anychip.fish"},
    {"version", "Processes and shell", "the version", "版本", "", "  anychip version"},
    {"help", "Processes and shell", "this page, or one command's", "本页，或某个命令的说明", "",
     "  anychip help switch"},
};

constexpr std::string_view kEverywhere =
    "\nEverywhere\n"
    "  -o table|json   data as a table or as the API's JSON, on stdout; talk goes to stderr\n"
    "  --data DIR      the data folder, and so the server (also: ANYCHIP_DATA)\n"
    "  --lang en|zh    language of this page and of the server's messages (also: LC_ALL, LANG)\n"
    "\nExit status: 0 ok, 1 failed, 2 cancelled, 3 usage, 4 auth, 5 not found, 6 conflict, 7 "
    "funds, "
    "8 no capacity, 9 timeout.\n"
    "Environment: ANYCHIP_DATA, ANYCHIP_URL and ANYCHIP_TOKEN (another server), NO_COLOR.\n";

constexpr std::string_view kEverywhereZh =
    "\n通用选项\n"
    "  -o table|json   以表格或 API 的 JSON 输出到 stdout；提示信息输出到 stderr\n"
    "  --data DIR      数据目录，也就决定了服务器（或用 ANYCHIP_DATA）\n"
    "  --lang en|zh    本页与服务器消息的语言（或用 LC_ALL、LANG）\n"
    "\n退出码：0 成功，1 失败，2 取消，3 用法错误，4 身份验证，5 找不到，6 冲突，7 余额不足，8 "
    "没有空闲芯片，"
    "9 超时。\n"
    "环境变量：ANYCHIP_DATA、ANYCHIP_URL 与 ANYCHIP_TOKEN（另一台服务器）、NO_COLOR。\n";

std::string_view chinese_of(std::string_view group) {
  if (group == "This machine") return "本机";
  if (group == "What there is") return "有什么";
  if (group == "Runs") return "运行";
  return "进程与命令行";
}

}  // namespace

std::span<const CommandHelp> command_helps() { return kHelps; }

const CommandHelp* help_of(std::string_view command) {
  for (const CommandHelp& help : command_helps()) {
    if (help.name == command) return &help;
  }
  return nullptr;
}

std::string overview(std::string_view language) {
  const bool is_chinese = language == "zh";
  std::string out =
      is_chinese ? "anychip：租用任意芯片，把正在进行的训练切换到另一种芯片，并比较两者的费用。\n\n"
                   "  anychip 命令 [选项]      anychip help 命令\n"
                 : "anychip: rent any chip, move a running training to another one, see what both "
                   "cost.\n\n"
                   "  anychip COMMAND [OPTIONS]      anychip help COMMAND\n";
  std::string_view group;
  for (const CommandHelp& help : command_helps()) {
    if (help.group != group)
      out += fmt::format("\n{}\n", is_chinese ? chinese_of(help.group) : help.group);
    group = help.group;
    out += fmt::format("  {:<11} {}\n", help.name, is_chinese ? help.summary_zh : help.summary);
  }
  return out + std::string(is_chinese ? kEverywhereZh : kEverywhere);
}

}  // namespace anychip::cli
