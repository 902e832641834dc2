// Numbers as models store them, and as they are computed with.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace {

struct Bf16 {
    uint16_t bits;
};

inline float to_float(float x) { return x; }

inline float to_float(Bf16 x) {
    uint32_t wide = uint32_t(x.bits) << 16;
    float y;
    std::memcpy(&y, &wide, sizeof y);
    return y;
}

inline void store(float x, float* to) { *to = x; }

inline void store(float x, Bf16* to) {
    uint32_t wide;
    std::memcpy(&wide, &x, sizeof wide);
    to->bits = uint16_t((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);  // to nearest, ties to even
}

// exp for x <= 0, to about two units in the last place: 2^n times a polynomial for the rest.
inline float exp_down(float x) {
    float t = std::max(x, -87.0f) * 1.44269504f;
    int n = int(t - 0.5f);
    float f = (t - float(n)) * 0.69314718f;
    float p = 1.0f + f * (1.0f + f * (0.5f + f * (1.0f / 6 + f * (1.0f / 24 + f * (1.0f / 120 + f * (1.0f / 720))))));
    int32_t bits = (n + 127) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof power);
    return p * power;
}

}  // namespace
