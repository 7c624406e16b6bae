/* SPDX-License-Identifier: MIT */
/* vrampool-bench: the commands and their help. */

#include "peers.h"
#include "replay.h"

#include <stdio.h>
#include <string.h>

static const char help[] =
    "usage: " BENCH_PROGRAM " replay TRACE [options]\n"
    "       " BENCH_PROGRAM " convert IN OUT\n"
    "       " BENCH_PROGRAM " frontier TRACE... --csv FILE [--lag N] [--device D]\n"
    "       " BENCH_PROGRAM " micro [options]\n"
    "       " BENCH_PROGRAM " peers [options]\n"
    "\n"
    "replay plays a recorded workload through a pool and prints its figures. TRACE\n"
    "is a vram trace (CSV, plain or gzip), a log of RMM, or the compact format.\n"
    "  --device sim:SIZE|cuda:N   where it runs; default sim:139GiB\n"
    "  --backing vmm|malloc       default vmm\n"
    "  --gap-limit high-water|SIZE|off\n"
    "                             default high-water with vmm, off with malloc\n"
    "  --lag N                    a simulated event completes N lines later; 64;\n"
    "                             on a GPU 0 waits for each event, else no effect\n"
    "  --optimizer threshold=SIZE,interval=N,at=turn|step|request[,idle=on]\n"
    "              [,keep=on][,hysteresis=on][,pressure=on]\n"
    "                             default off\n"
    "  --knob NAME=VALUE          a setting of the pool; may come again\n"
    "  --compare-policies         one row for each policy of the optimizer\n"
    "  --check-empty-cache N      at N points: empty the cache, recount, compare\n"
    "  --repeat N                 N times, which must agree; the fastest counts\n"
    "  --fast                     without the detector of misuse\n"
    "  --json FILE|-              the figures as JSON too, or (-) alone\n"
    "convert writes a trace in the compact format.\n"
    "frontier replays each trace under many settings, for a plot of gap against\n"
    "driver time.\n"
    "micro measures the library: pairs, replacement, threads, trims, host memory.\n"
    "  --device, --json           as above\n"
    "  --csv FILE                 the figures as CSV\n"
    "  --only NAME[,NAME]         pair, pair-BYTES, replace, threads, handoff,\n"
    "                             empty_cache, launch, first_touch, host_memory\n"
    "  --trace TRACE              resident memory over 20 replays of it\n"
    "  --pairs N                  pairs: exactly N, once, without preparation\n"
    "  --repeat N, --sample-ms N  samples of each figure (7), their length (50)\n"
    "  --quick                    3 short samples\n"
    "peers measures the same for every allocator that is found.\n"
    "  --adaptors FOLDER          torch.so, rmm.so: bench/build_adaptors.sh\n"
    "  --allocators NAME[,NAME]   only these\n"
    "  --json FILE                small measurements\n"
    "  --replays-json FILE        replays of each --trace, with kernels\n"
    "  --max-seconds N            a replay stops after that\n"
    "Sizes: a number with KiB, MiB, GiB, TiB, KB, MB or GB, or bytes.\n"
    "Exit status: 0; 1 the trace is malformed or a check failed; 2 usage; 3 some\n"
    "allocations were refused.\n";

static int command(int count, char **words) {
    if (count == 0)
        return bench_usage("no command was given");
    if (strcmp(words[0], "--help") == 0 || strcmp(words[0], "-h") == 0 ||
        strcmp(words[0], "help") == 0)
        return -1;
    if (strcmp(words[0], "--version") == 0)
        return puts(vrp_build_info()) == EOF;
    if (strcmp(words[0], "replay") == 0)
        return bench_replay_command(count - 1, words + 1);
    if (strcmp(words[0], "convert") == 0)
        return bench_convert_command(count - 1, words + 1);
    if (strcmp(words[0], "frontier") == 0)
        return bench_frontier_command(count - 1, words + 1);
    if (strcmp(words[0], "micro") == 0)
        return bench_micro_command(count - 1, words + 1);
    if (strcmp(words[0], "peers") == 0)
        return bench_peers_command(count - 1, words + 1);
    if (strcmp(words[0], "child") == 0)
        return bench_child_command(count - 1, words + 1);
    return bench_usage("\"%s\" is no command", words[0]);
}

int main(int argc, char **argv) {
    int code = command(argc - 1, argv + 1);
    if (code >= 0)
        return code;
    return fputs(help, stdout) == EOF ? BENCH_FAILED : BENCH_OK;
}
