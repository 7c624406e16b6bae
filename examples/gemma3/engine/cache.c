/* SPDX-License-Identifier: MIT */
#include "cache.h"

#include <string.h>

void g3_cache_init(g3_cache *cache, const g3_model *model, vrp_scope scope, uint32_t context,
                   g3_kv_type type) {
    const g3_text_config *text = &model->config.text;
    *cache = (g3_cache){.model = model,
                        .scope = scope,
                        .type = type,
                        .context = context,
                        .slots = text->window < context ? text->window : context};
    for (uint32_t i = 0; i < text->layers; i++)
        cache->ordinal[i] = text->global[i] ? cache->global_layers++ : cache->local_layers++;
    cache->row_bytes = (size_t)text->kv_heads * text->head_dim * g3_kv_element_bytes(type);
    cache->token_bytes = 2 * cache->row_bytes * cache->global_layers;
}

static g3_status ensure_rings(g3_cache *cache, g3_error *error) {
    for (uint32_t i = 0; i < cache->local_layers; i++) {
        if (cache->rings[i] != 0)
            continue;
        g3_status status =
            g3_memory_alloc(cache->model->memory, 2 * cache->row_bytes * cache->slots, VRP_TAG_KV,
                            cache->scope, &cache->rings[i], error);
        if (status != G3_OK)
            return g3_fail_in(error, status, "cache of a local layer");
    }
    return G3_OK;
}

g3_status g3_cache_ensure(g3_cache *cache, uint32_t positions, g3_error *error) {
    g3_memory *memory = cache->model->memory;
    g3_status status = ensure_rings(cache, error);
    if (status != G3_OK || cache->token_bytes == 0)
        return status;
    if (cache->global == NULL)
        status = g3_memory_buffer_create(memory, (uint64_t)cache->token_bytes * cache->context,
                                         VRP_TAG_KV, cache->scope, &cache->global, error);
    const uint64_t needed = (uint64_t)cache->token_bytes * positions;
    if (status == G3_OK && vrp_growable_size(cache->global) < needed)
        status = g3_memory_buffer_resize(memory, cache->global, needed, error);
    return status == G3_OK ? G3_OK : g3_fail_in(error, status, "cache of the global layers");
}

uint64_t g3_cache_growth(const g3_cache *cache, uint32_t positions) {
    const uint64_t needed = (uint64_t)cache->token_bytes * positions;
    const uint64_t size = cache->global == NULL ? 0 : vrp_growable_size(cache->global);
    return needed > size ? needed - size : 0;
}

void g3_cache_shrink(g3_cache *cache, uint32_t positions) {
    const uint64_t needed = (uint64_t)cache->token_bytes * positions;
    g3_error ignored;
    if (cache->global != NULL && vrp_growable_size(cache->global) > needed)
        (void)g3_memory_buffer_resize(cache->model->memory, cache->global, needed, &ignored);
}

void g3_cache_drop(g3_cache *cache) {
    g3_memory_buffer_destroy(cache->model->memory, cache->global);
    cache->global = NULL;
    for (uint32_t i = 0; i < cache->local_layers; i++) {
        g3_memory_free(cache->model->memory, cache->rings[i]);
        cache->rings[i] = 0;
    }
}

size_t g3_cache_pending_bytes(const g3_cache *cache, size_t n) {
    return 2 * cache->row_bytes * n * cache->local_layers;
}

/* Where position `first` of a layer is written: its keys; the values follow. */
static char *rows_for_writing(const g3_cache *cache, uint32_t layer, size_t first, size_t n,
                              void *pending, size_t *out_stride) {
    const size_t ordinal = cache->ordinal[layer];
    if (cache->model->config.text.global[layer]) {
        *out_stride = cache->token_bytes;
        return (char *)g3_host(vrp_growable_base(cache->global)) + first * cache->token_bytes +
               ordinal * 2 * cache->row_bytes;
    }
    *out_stride = 2 * cache->row_bytes;
    return (char *)pending + ordinal * n * 2 * cache->row_bytes;
}

void g3_cache_store(const g3_cache *cache, uint32_t layer, size_t first, size_t n,
                    const float *keys, const float *values, void *pending) {
    const g3_text_config *text = &cache->model->config.text;
    const uint32_t width = text->kv_heads * text->head_dim;
    size_t stride;
    char *rows = rows_for_writing(cache, layer, first, n, pending, &stride);
    g3_kv_store(cache->type, keys, width, n, width, rows, stride);
    g3_kv_store(cache->type, values, width, n, width, rows + cache->row_bytes, stride);
}

g3_kv_view g3_cache_view(const g3_cache *cache, uint32_t layer, size_t first, size_t n,
                         const void *pending) {
    const g3_text_config *text = &cache->model->config.text;
    const size_t ordinal = cache->ordinal[layer], row = cache->row_bytes;
    g3_kv_view view = {.type = cache->type, .kv_heads = text->kv_heads, .head_dim = text->head_dim};
    if (text->global[layer]) {
        const char *base =
            (const char *)g3_host(vrp_growable_base(cache->global)) + ordinal * 2 * row;
        view.old_keys = base;
        view.old_values = base + row;
        view.old_stride = cache->token_bytes;
        view.old_slots = view.split = first + n;
        return view;
    }
    const char *ring = g3_host(cache->rings[ordinal]);
    const char *fresh = (const char *)pending + ordinal * n * 2 * row;
    view.old_keys = ring;
    view.old_values = ring + row;
    view.new_keys = fresh;
    view.new_values = fresh + row;
    view.old_stride = view.new_stride = 2 * row;
    view.old_slots = cache->slots;
    view.split = first;
    return view;
}

void g3_cache_commit(g3_cache *cache, size_t first, size_t n, const void *pending) {
    const size_t pair = 2 * cache->row_bytes;
    const size_t skip = n > cache->slots ? n - cache->slots : 0; /* already out of the window */
    for (uint32_t layer = 0; layer < cache->local_layers; layer++) {
        char *ring = g3_host(cache->rings[layer]);
        const char *fresh = (const char *)pending + layer * n * pair;
        for (size_t i = skip; i < n; i++)
            memcpy(ring + (first + i) % cache->slots * pair, fresh + i * pair, pair);
    }
}
