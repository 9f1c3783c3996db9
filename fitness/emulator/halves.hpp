// Numbers of 16 and 8 bits, to and from fp32.

namespace evo {

template <class To, class From> To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(static_cast<void*>(&to), &from, sizeof to);
    return to;
}

inline unsigned short encoded_bf16(float value) {
    const auto bits = same_bits<std::uint32_t>(value);
    if (value != value) return 0x7fff;
    return static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);  // ties to even
}
inline float decoded_bf16(unsigned short bits) { return same_bits<float>(static_cast<std::uint32_t>(bits) << 16); }
inline unsigned short encoded_fp16(float value) { return same_bits<unsigned short>(static_cast<_Float16>(value)); }
inline float decoded_fp16(unsigned short bits) { return static_cast<float>(same_bits<_Float16>(bits)); }
inline float decoded_e5m2(unsigned char bits) { return decoded_fp16(static_cast<unsigned short>(bits << 8)); }
// 4 bits of exponent, 3 of fraction, no infinities: all ones are NaN.
inline float decoded_e4m3(unsigned char bits) {
    const int exponent = bits >> 3 & 15, fraction = bits & 7;
    const float size = exponent ? ::ldexpf(1 + fraction / 8.0f, exponent - 7) : ::ldexpf(fraction / 8.0f, -6);
    return (bits & 127) == 127 ? std::numeric_limits<float>::quiet_NaN() : bits & 128 ? -size : size;
}

}  // namespace evo
