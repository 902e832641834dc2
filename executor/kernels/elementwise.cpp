// What transformers does to each token between the linear layers, in one pass over memory each.
//
// Every result that transformers rounds to the model's numbers is rounded here too.

#include <cmath>

#include "numbers.h"

namespace {

template <typename T>
inline float rounded(float x) {
    T kept;
    store(x, &kept);
    return to_float(kept);
}

// `weight * (x / root of the mean square of x)`, for rows of `dim` numbers.
template <typename T>
void rms_norm(const T* x, const T* weight, T* __restrict__ out, int64_t rows, int64_t dim, float epsilon) {
    for (int64_t r = 0; r < rows; ++r, x += dim, out += dim) {
        float sum = 0.0f;
        for (int64_t d = 0; d < dim; ++d) sum += to_float(x[d]) * to_float(x[d]);
        float factor = 1.0f / std::sqrt(sum / float(dim) + epsilon);
        for (int64_t d = 0; d < dim; ++d) store(rounded<T>(to_float(x[d]) * factor) * to_float(weight[d]), out + d);
    }
}

inline float silu(float x) {
    float e = exp_down(-std::fabs(x));
    return x * (x < 0 ? e : 1.0f) / (1.0f + e);
}

template <typename T>
void silu_product(const T* gate, const T* up, T* __restrict__ out, int64_t count) {
    for (int64_t i = 0; i < count; ++i) store(rounded<T>(silu(to_float(gate[i]))) * to_float(up[i]), out + i);
}

// Halves of each head turned by an angle for each token: x [tokens, heads, dim] with strides, out the same without
// gaps, cosines and sines [tokens, dim].
template <typename T>
void rotate(const T* x, const T* cosines, const T* sines, T* __restrict__ out, int64_t tokens, int64_t heads, int64_t dim,
            int64_t token_stride, int64_t head_stride) {
    int64_t half = dim / 2;
    for (int64_t t = 0; t < tokens; ++t, cosines += dim, sines += dim)
        for (int64_t h = 0; h < heads; ++h, out += dim) {
            const T* from = x + t * token_stride + h * head_stride;
            for (int64_t d = 0; d < half; ++d) {
                float low = to_float(from[d]), high = to_float(from[d + half]);
                store(rounded<T>(low * to_float(cosines[d])) - rounded<T>(high * to_float(sines[d])), out + d);
                store(rounded<T>(high * to_float(cosines[d + half])) + rounded<T>(low * to_float(sines[d + half])),
                      out + d + half);
            }
        }
}

}  // namespace

#define KERNELS(SUFFIX, T)                                                                                            \
    extern "C" void rms_norm_##SUFFIX(const T* x, const T* weight, T* out, int64_t rows, int64_t dim, float epsilon) { \
        rms_norm(x, weight, out, rows, dim, epsilon);                                                                 \
    }                                                                                                                 \
    extern "C" void silu_product_##SUFFIX(const T* gate, const T* up, T* out, int64_t count) {                        \
        silu_product(gate, up, out, count);                                                                           \
    }                                                                                                                 \
    extern "C" void rotate_##SUFFIX(const T* x, const T* cosines, const T* sines, T* out, int64_t tokens,             \
                                    int64_t heads, int64_t dim, int64_t token_stride, int64_t head_stride) {          \
        rotate(x, cosines, sines, out, tokens, heads, dim, token_stride, head_stride);                                \
    }

KERNELS(float32, float)
KERNELS(bfloat16, Bf16)
