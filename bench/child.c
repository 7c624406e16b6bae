/* SPDX-License-Identifier: MIT */
/* One allocator in a process of its own: its small measurements, or one trace.
 * The result is one JSON object, also where the allocator is not found. */

#include "adaptors.h"
#include "contest.h"
#include "peers.h"

#include <string.h>
#include <unistd.h>

typedef struct child {
    const bench_plan *plan;
    const bench_peer *peer;
    const bench_adaptor *adaptor;
    bench_stage stage;
    vrp_driver *driver;  /* of the GPU or simulated device; only for vrampool */
    vrp_driver *clocked; /* in front of it, for a replay */
    bench_clocked clock;
    bench_json *json;
} child;

static bench_adaptor_host host_of(const child *c) {
    return (bench_adaptor_host){.variant = c->peer->variant,
                                .ordinal = c->stage.ordinal,
                                .on_gpu = c->stage.on_gpu,
                                .driver = c->clocked != NULL ? c->clocked : c->driver};
}

static int not_found(const child *c, const char *reason) {
    bench_json_text(c->json, "not_found", reason);
    return BENCH_OK;
}

static int run_micro(child *c) {
    bench_sheet sheet = {0};
    bench_measure m = {.stage = &c->stage,
                       .adaptor = c->adaptor,
                       .sheet = &sheet,
                       .host = host_of(c),
                       .repeat = c->plan->repeat,
                       .sample_ns = c->plan->sample_ms * 1000000,
                       .only = c->plan->only};
    int code = bench_measure_all(&m);
    if (code != BENCH_OK)
        bench_json_text(c->json, "failed", "a measurement broke off; those before it stand");
    bench_sheet_json(c->json, "measurements", &sheet);
    bench_sheet_free(&sheet);
    return BENCH_OK;
}

static int run_replay(child *c, void *self, const bench_script *script) {
    bench_outcome outcome;
    bench_contest contest = {.stage = &c->stage,
                             .adaptor = c->adaptor,
                             .self = self,
                             .script = script,
                             .clocked = c->clocked != NULL ? &c->clock : NULL,
                             .most_ns = c->plan->most_seconds * 1000000000};
    if (bench_contest_run(&contest, &outcome) != BENCH_OK) {
        bench_json_text(c->json, "failed", "the replay broke off");
        return BENCH_OK;
    }
    bench_outcome_json(c->json, &contest, &outcome);
    return BENCH_OK;
}

static int with_allocator(child *c) {
    void *self = NULL;
    bench_script script;
    bench_adaptor_host host = host_of(c);
    const char *reason = c->adaptor->create(&host, &self);
    if (reason != NULL)
        return not_found(c, reason);
    bench_json_text(c->json, "version", c->adaptor->version_text(self));
    if (c->plan->trace_count == 0) {
        c->adaptor->destroy(self); /* each measurement makes its own */
        return run_micro(c);
    }
    int code = bench_script_read(&script, c->plan->traces[0]);
    if (code == BENCH_OK) {
        code = run_replay(c, self, &script);
        bench_script_free(&script);
    }
    (void)bench_stage_synchronise(&c->stage);
    c->adaptor->destroy(self);
    return code;
}

static int with_stage(child *c) {
    char reason[512] = "";
    bench_json_text(c->json, "device", c->stage.name);
    if (!c->stage.on_gpu && !c->peer->on_sim)
        return not_found(c, "only on a GPU");
    c->adaptor = bench_peer_load(c->peer, c->plan->adaptors, reason, sizeof reason);
    if (c->adaptor == NULL)
        return not_found(c, reason);
    if (strcmp(c->peer->id, "vrampool") == 0) {
        c->driver = bench_stage_driver(&c->stage);
        if (c->driver != NULL && c->plan->trace_count > 0)
            c->clocked = bench_clocked_driver(&c->clock, c->driver);
    }
    int code = with_allocator(c);
    vrp_driver_destroy(c->clocked);
    vrp_driver_destroy(c->driver);
    return code;
}

int bench_child_command(int count, char **words) {
    static child c;
    bench_plan plan;
    bench_json json;
    int help;
    int code = bench_plan_parse(&plan, count, words, &help);
    if (code != BENCH_OK || help)
        return help ? -1 : code;
    c.plan = &plan;
    c.peer = plan.allocator != NULL ? bench_peer_find(plan.allocator) : NULL;
    if (c.peer == NULL || plan.json == NULL)
        return bench_usage("a child needs --allocator and --json");
    FILE *out = bench_open_out(plan.json);
    if (out == NULL)
        return BENCH_FAILED;
    c.json = &json;
    bench_json_begin(&json, out);
    bench_json_open(&json, NULL, '{');
    bench_json_text(&json, "allocator", c.peer->id);
    if (plan.trace_count > 0)
        bench_json_text(&json, "trace", plan.traces[0]);
    code = bench_stage_open(&c.stage, &plan.device);
    if (code == BENCH_OK) {
        code = with_stage(&c);
        int closed = bench_stage_close(&c.stage);
        code = code != BENCH_OK ? code : closed;
    }
    bench_json_close(&json, '}');
    int closed = bench_close_out(out);
    /* Libraries that end with the process may expect a device that is gone. */
    _exit(code != BENCH_OK ? code : closed);
}
