/* SPDX-License-Identifier: MIT */
/* Captures. The calls of the driver table count as made in relaxed mode: what
 * ends a capture is only what touches the capturing stream. */

#include "driver/sim_internal.h"

static void end_capture(vrp_sim *sim, vrpi_sim_stream *stream, int library) {
    stream->capture = VRPI_SIM_CAPTURE_BROKEN;
    sim->capture_breaks += library ? 1 : 0;
}

static vrp_status refuse(int64_t native) {
    (void)vrpi_fail(VRP_INTERNAL, "a stream is being captured (error %lld)", (long long)native);
    return vrpi_sim_native(VRP_INTERNAL, native);
}

vrp_status vrpi_sim_capture_guard(vrp_sim *sim, vrpi_sim_stream *stream, int64_t native,
                                  int library) {
    int implicit = 0;
    if (stream->capture == VRPI_SIM_CAPTURE_BROKEN)
        return refuse(VRPI_SIM_NATIVE_CAPTURE_INVALIDATED);
    if (stream->capture == VRPI_SIM_CAPTURE_ACTIVE) {
        end_capture(sim, stream, library);
        return refuse(native);
    }
    if (stream != sim->legacy)
        return VRP_OK;
    /* Work on the legacy stream would order itself into the capture. */
    for (uint32_t i = 0; i < sim->stream_count; i++)
        if (sim->streams[i]->capture == VRPI_SIM_CAPTURE_ACTIVE &&
            vrpi_sim_stream_blocking(sim->streams[i])) {
            end_capture(sim, sim->streams[i], library);
            implicit = 1;
        }
    return implicit ? refuse(VRPI_SIM_NATIVE_CAPTURE_IMPLICIT) : VRP_OK;
}

vrp_status vrpi_sim_capture_guard_all(vrp_sim *sim, int library) {
    int ended = 0;
    for (uint32_t i = 0; i < sim->stream_count; i++)
        if (sim->streams[i]->capture == VRPI_SIM_CAPTURE_ACTIVE) {
            end_capture(sim, sim->streams[i], library);
            ended = 1;
        }
    return ended ? refuse(VRPI_SIM_NATIVE_CAPTURE_UNSUPPORTED) : VRP_OK;
}

/* The legacy stream answers for the captures that work on it would end. */
static int is_capturing(const vrp_sim *sim, const vrpi_sim_stream *stream) {
    if (stream != sim->legacy)
        return stream->capture != VRPI_SIM_CAPTURE_NONE;
    for (uint32_t i = 0; i < sim->stream_count; i++)
        if (sim->streams[i]->capture == VRPI_SIM_CAPTURE_ACTIVE &&
            vrpi_sim_stream_blocking(sim->streams[i]))
            return 1;
    return 0;
}

vrp_status vrpi_sim_stream_is_capturing(void *ctx, vrp_stream stream, int *out_capturing) {
    vrp_sim *sim = ((vrpi_sim_device *)ctx)->sim;
    vrpi_sim_stream *found = NULL;
    vrp_status status;
    VRPI_TRY(vrpi_sim_enter(sim, VRP_SIM_CALL_STREAM_IS_CAPTURING, stream));
    status = vrpi_sim_stream_find(sim, stream, &found);
    if (status == VRP_OK)
        *out_capturing = is_capturing(sim, found);
    return vrpi_sim_leave(sim, status, vrp_sim_price_ns(VRP_SIM_CALL_STREAM_IS_CAPTURING, 0));
}

vrp_status vrp_sim_capture_begin(vrp_sim *sim, vrp_stream stream, int32_t mode) {
    vrpi_sim_stream *found = NULL;
    vrp_status status;
    if (sim == NULL || mode < VRP_SIM_CAPTURE_GLOBAL || mode > VRP_SIM_CAPTURE_RELAXED)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "capture_begin: no machine or no such mode");
    vrpi_mutex_lock(&sim->lock);
    status = vrpi_sim_stream_find(sim, stream, &found);
    if (status == VRP_OK && (found == sim->legacy || found->capture != VRPI_SIM_CAPTURE_NONE))
        status = vrpi_fail(VRP_INVALID_ARGUMENT, "the stream cannot be captured now");
    if (status == VRP_OK)
        found->capture = VRPI_SIM_CAPTURE_ACTIVE;
    vrpi_mutex_unlock(&sim->lock);
    return status;
}

vrp_status vrp_sim_capture_end(vrp_sim *sim, vrp_stream stream, int *out_intact) {
    vrpi_sim_stream *found = NULL;
    vrp_status status;
    if (sim == NULL || out_intact == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "capture_end: NULL");
    vrpi_mutex_lock(&sim->lock);
    status = vrpi_sim_stream_find(sim, stream, &found);
    if (status == VRP_OK && found->capture == VRPI_SIM_CAPTURE_NONE)
        status = vrpi_fail(VRP_INVALID_ARGUMENT, "the stream is not captured");
    if (status == VRP_OK) {
        *out_intact = found->capture == VRPI_SIM_CAPTURE_ACTIVE;
        found->capture = VRPI_SIM_CAPTURE_NONE;
    }
    vrpi_mutex_unlock(&sim->lock);
    return status;
}
