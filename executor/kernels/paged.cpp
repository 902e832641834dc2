// Attention of a few queries per row over a paged KV cache, for rows that decode.
//
// Keys and values are [blocks, block_size, kv_heads, dim] without gaps. The heads that share keys are done together:
// a tile of 16 keys is brought to float once for all of them. Scores and sums are float, whatever the cache holds.

#include <vector>

#include "numbers.h"

namespace {

constexpr int LANES = 16;
constexpr int TILE = 16;
constexpr int AHEAD = 16;  // keys for which memory is asked early

typedef float Lanes __attribute__((vector_size(LANES * sizeof(float))));

struct Shape {
    int64_t heads, kv_heads, key_dim, value_dim, block_size;
    int64_t token_stride, head_stride;  // of the queries, in numbers
    int64_t window;                     // keys that a query sees, 0: all
    float scale, softcap;               // softcap 0: none
};

struct Row {
    int64_t start, queries, length;  // first token of the pass, and how many; keys
    const int32_t* pages;
};

inline float capped(float score, float cap) {
    float e = exp_down(-2.0f * (score < 0 ? -score : score) / cap);
    float t = cap * (1.0f - e) / (1.0f + e);
    return score < 0 ? -t : t;
}

// Sums of the lanes of 16 vectors, as one vector: halves are folded four times, all vectors at once.
inline Lanes sums(const Lanes* in) {
    Lanes a[8], b[4], c[2];
    for (int i = 0; i < 8; ++i)
        a[i] = __builtin_shufflevector(in[2 * i], in[2 * i + 1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +
               __builtin_shufflevector(in[2 * i], in[2 * i + 1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
    for (int i = 0; i < 4; ++i)
        b[i] = __builtin_shufflevector(a[2 * i], a[2 * i + 1], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
               __builtin_shufflevector(a[2 * i], a[2 * i + 1], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    for (int i = 0; i < 2; ++i)
        c[i] = __builtin_shufflevector(b[2 * i], b[2 * i + 1], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27) +
               __builtin_shufflevector(b[2 * i], b[2 * i + 1], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
    return __builtin_shufflevector(c[0], c[1], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
           __builtin_shufflevector(c[0], c[1], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
}

inline int64_t vectors(int64_t dim) { return (dim + LANES - 1) / LANES; }

template <int CHUNKS>
inline int64_t chunks_of(int64_t dim) { return CHUNKS ? CHUNKS : vectors(dim); }

// One head's keys or values in `count` slots of the cache, as float rows padded with zeros.
template <typename T, int CHUNKS>
void load_tile(const T* cache, const Shape& s, int64_t dim, int64_t head, const int64_t* slots, int64_t count,
               float* tile) {
    int64_t padded = chunks_of<CHUNKS>(dim) * LANES;
    if (CHUNKS) dim = padded;
    for (int64_t i = 0; i < count; ++i) {
        const T* from = cache + (slots[i] * s.kv_heads + head) * dim;
        float* to = tile + i * padded;
        const T* ahead = cache + (slots[i + AHEAD] * s.kv_heads + head) * dim;
        for (int64_t d = 0; d < dim; d += 64 / int64_t(sizeof(T))) __builtin_prefetch(ahead + d);
        for (int64_t d = 0; d < dim; ++d) to[d] = to_float(from[d]);
        for (int64_t d = dim; d < padded; ++d) to[d] = 0.0f;
    }
    if (count < TILE) std::memset(tile + count * padded, 0, size_t((TILE - count) * padded) * sizeof(float));
}

template <int CHUNKS>
Lanes tile_scores(const Lanes* query, const Lanes* tile, int64_t dim) {
    int64_t chunks = chunks_of<CHUNKS>(dim);
    Lanes parts[TILE];
    for (int i = 0; i < TILE; ++i) {
        Lanes sum = query[0] * tile[i * chunks];
        for (int64_t c = 1; c < chunks; ++c) sum += query[c] * tile[i * chunks + c];
        parts[i] = sum;
    }
    return sums(parts);
}

template <int CHUNKS>
void add_tile(const float* weights, const Lanes* tile, int64_t dim, Lanes* into) {
    int64_t chunks = chunks_of<CHUNKS>(dim);
    for (int64_t c = 0; c < chunks; ++c) {
        Lanes even = into[c], odd = {};
        for (int i = 0; i < TILE; i += 2) {
            even += weights[i] * tile[i * chunks + c];
            odd += weights[i + 1] * tile[(i + 1) * chunks + c];
        }
        into[c] = even + odd;
    }
}

// Turns scores into weights that sum to `1 / returned`.
float soften(float* scores, int64_t count, float scale, float softcap) {
    float top = -3.0e38f, total = 0.0f;
    for (int64_t i = 0; i < count; ++i) scores[i] *= scale;
    if (softcap > 0)
        for (int64_t i = 0; i < count; ++i) scores[i] = capped(scores[i], softcap);
    for (int64_t i = 0; i < count; ++i) top = std::max(top, scores[i]);
    for (int64_t i = 0; i < count; ++i) {
        scores[i] = exp_down(scores[i] - top);
        total += scores[i];
    }
    return 1.0f / total;
}

struct Buffers {
    std::vector<Lanes> query, tile, sum;
    std::vector<float> scores, norms;
    std::vector<int64_t> slots;
};

// Where the keys of a row lie in the cache; a few more entries for what is asked early.
void find_slots(const Row& row, int64_t block_size, std::vector<int64_t>& slots) {
    slots.assign(size_t(row.length + AHEAD), 0);
    for (int64_t at = 0, page = 0; at < row.length; ++page)
        for (int64_t i = 0; i < block_size && at < row.length; ++i) slots[size_t(at++)] = row.pages[page] * block_size + i;
}

// All heads of one query that sees the keys `first` to `last`. A tile of keys is read for all heads before the next one:
// memory is walked in order.
template <typename T, int KEY, int VALUE>
void one_query(const T* query, const T* keys, const T* values, T* out, const Shape& s, int64_t first, int64_t last,
               Buffers& b) {
    int64_t group = s.heads / s.kv_heads, width = (last - first + TILE - 1) / TILE * TILE;
    int64_t kc = vectors(s.key_dim), vc = vectors(s.value_dim);
    b.query.assign(size_t(s.heads * kc), Lanes{});
    b.sum.assign(size_t(s.heads * vc), Lanes{});
    b.tile.resize(size_t(TILE * std::max(kc, vc)));
    b.scores.resize(size_t(s.heads * width));
    b.norms.resize(size_t(s.heads));
    float* tile = reinterpret_cast<float*>(b.tile.data());
    float* scores = b.scores.data();
    for (int64_t h = 0; h < s.heads; ++h) {
        float* to = reinterpret_cast<float*>(&b.query[size_t(h * kc)]);
        for (int64_t d = 0; d < s.key_dim; ++d) to[d] = to_float(query[h * s.head_stride + d]);
    }
    for (int64_t at = first; at < last; at += TILE)
        for (int64_t kv = 0; kv < s.kv_heads; ++kv) {
            load_tile<T, KEY>(keys, s, s.key_dim, kv, &b.slots[size_t(at)], std::min<int64_t>(TILE, last - at), tile);
            for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
                Lanes found = tile_scores<KEY>(&b.query[size_t(h * kc)], b.tile.data(), s.key_dim);
                std::memcpy(scores + h * width + at - first, &found, sizeof found);
            }
        }
    for (int64_t h = 0; h < s.heads; ++h) {
        b.norms[size_t(h)] = soften(scores + h * width, last - first, s.scale, s.softcap);
        std::fill(scores + h * width + (last - first), scores + (h + 1) * width, 0.0f);
    }
    for (int64_t at = first; at < last; at += TILE)
        for (int64_t kv = 0; kv < s.kv_heads; ++kv) {
            load_tile<T, VALUE>(values, s, s.value_dim, kv, &b.slots[size_t(at)], std::min<int64_t>(TILE, last - at), tile);
            for (int64_t h = kv * group; h < (kv + 1) * group; ++h)
                add_tile<VALUE>(scores + h * width + at - first, b.tile.data(), s.value_dim, &b.sum[size_t(h * vc)]);
        }
    for (int64_t h = 0; h < s.heads; ++h) {
        const float* from = reinterpret_cast<const float*>(&b.sum[size_t(h * vc)]);
        for (int64_t d = 0; d < s.value_dim; ++d) store(from[d] * b.norms[size_t(h)], out + h * s.value_dim + d);
    }
}

template <typename T, int KEY, int VALUE>
void all_rows(const T* query, const T* keys, const T* values, T* out, const Shape& s, const Row* rows, int64_t count) {
    Buffers buffers;
    for (int64_t r = 0; r < count; ++r) {
        find_slots(rows[r], s.block_size, buffers.slots);
        for (int64_t q = 0; q < rows[r].queries; ++q) {
            int64_t token = rows[r].start + q, last = rows[r].length - rows[r].queries + q + 1;
            int64_t first = s.window > 0 ? std::max<int64_t>(0, last - s.window) : 0;
            one_query<T, KEY, VALUE>(query + token * s.token_stride, keys, values, out + token * s.heads * s.value_dim,
                                     s, first, last, buffers);
        }
    }
}

template <typename T>
void by_size(const void* query, const void* keys, const void* values, void* out, const Shape& s, const Row* rows,
             int64_t count) {
    auto run = all_rows<T, 0, 0>;
    if (s.key_dim == 64 && s.value_dim == 64) run = all_rows<T, 4, 4>;
    if (s.key_dim == 128 && s.value_dim == 128) run = all_rows<T, 8, 8>;
    run(static_cast<const T*>(query), static_cast<const T*>(keys), static_cast<const T*>(values), static_cast<T*>(out),
        s, rows, count);
}

}  // namespace

extern "C" void paged_attention_float32(const void* query, const void* keys, const void* values, void* out,
                                        const Shape* shape, const Row* rows, int64_t count) {
    by_size<float>(query, keys, values, out, *shape, rows, count);
}

extern "C" void paged_attention_bfloat16(const void* query, const void* keys, const void* values, void* out,
                                         const Shape* shape, const Row* rows, int64_t count) {
    by_size<Bf16>(query, keys, values, out, *shape, rows, count);
}
