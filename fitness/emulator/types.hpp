// What the rest is made of: the C library and CUDA's vector types.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <math.h>
#include <type_traits>
#include <utility>

#define EVO_VECTOR_TYPES(NAME, ...)                                                                       \
    struct NAME##1 { __VA_ARGS__ x; };                                                                    \
    struct alignas(2 * sizeof(__VA_ARGS__)) NAME##2 { __VA_ARGS__ x, y; };                                \
    struct NAME##3 { __VA_ARGS__ x, y, z; };                                                              \
    struct alignas(sizeof(__VA_ARGS__) < 4 ? 4 * sizeof(__VA_ARGS__) : 16) NAME##4 { __VA_ARGS__ x, y, z, w; }; \
    constexpr NAME##1 make_##NAME##1(__VA_ARGS__ x) { return {x}; }                                       \
    constexpr NAME##2 make_##NAME##2(__VA_ARGS__ x, __VA_ARGS__ y) { return {x, y}; }                     \
    constexpr NAME##3 make_##NAME##3(__VA_ARGS__ x, __VA_ARGS__ y, __VA_ARGS__ z) { return {x, y, z}; }   \
    constexpr NAME##4 make_##NAME##4(__VA_ARGS__ x, __VA_ARGS__ y, __VA_ARGS__ z, __VA_ARGS__ w) { return {x, y, z, w}; }
EVO_VECTOR_TYPES(char, signed char)
EVO_VECTOR_TYPES(uchar, unsigned char)
EVO_VECTOR_TYPES(short, short)
EVO_VECTOR_TYPES(ushort, unsigned short)
EVO_VECTOR_TYPES(int, int)
EVO_VECTOR_TYPES(uint, unsigned)
EVO_VECTOR_TYPES(long, long)
EVO_VECTOR_TYPES(ulong, unsigned long)
EVO_VECTOR_TYPES(longlong, long long)
EVO_VECTOR_TYPES(ulonglong, unsigned long long)
EVO_VECTOR_TYPES(float, float)
EVO_VECTOR_TYPES(double, double)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};

constexpr int warpSize = 32;
