// What the plan of a kernel is worked out with: kernel-evo's integer arithmetic, its limits, and memory.
// Apache-2.0, see LICENSE. Everything is local to the file that includes it, so that several kernels fit in a program.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {
namespace evo_plan {

// --- numbers: every value lies within plus or minus 2^63 - 1; where there is none, std::invalid_argument is thrown -----

constexpr long long MOST = 9223372036854775807LL;

[[noreturn]] inline void fail(const std::string& problem) { throw std::invalid_argument(problem); }
[[noreturn]] inline void overflow() { fail("exceeds 2**63 - 1 in magnitude"); }
inline long long truth(bool holds) { return holds ? 1 : 0; }
inline bool equal(long long a, long long b) { return a == b; }
inline bool unequal(long long a, long long b) { return a != b; }
inline bool less(long long a, long long b) { return a < b; }
inline bool at_most(long long a, long long b) { return a <= b; }
inline bool greater(long long a, long long b) { return a > b; }
inline bool at_least(long long a, long long b) { return a >= b; }

inline long long add(long long a, long long b) {
    if (b > 0 ? a > MOST - b : a < -MOST - b) overflow();
    return a + b;
}
inline long long sub(long long a, long long b) { return add(a, -b); }
inline long long mul(long long a, long long b) {
    const long long x = a < 0 ? -a : a, y = b < 0 ? -b : b;
    if (x != 0 && y > MOST / x) overflow();
    return a * b;
}
inline long long floor_div(long long a, long long b) {  // rounded towards minus infinity
    if (b == 0) fail("divides by zero");
    return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
inline long long mod(long long a, long long b) {  // of the divisor's sign
    if (b == 0) fail("divides by zero");
    const long long rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
inline long long power(long long base, long long exponent) {
    if (exponent < 0) fail("has a negative exponent");
    if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    long long made = 1;
    for (; exponent > 0; --exponent) made = mul(made, base);  // at most 63 times: then it overflows
    return made;
}
inline long long ceil_div(long long a, long long b) { return -floor_div(-a, b); }
inline long long ceil_log2(long long n) {
    long long k = 0;
    for (unsigned long long left = n > 1 ? static_cast<unsigned long long>(n) - 1 : 0; left != 0; left >>= 1) ++k;
    return k;
}
inline long long next_pow2(long long n) {
    const long long k = ceil_log2(n);
    if (k > 62) overflow();
    return 1LL << k;
}
inline long long least(std::initializer_list<long long> of) { return std::min(of); }
inline long long most(std::initializer_list<long long> of) { return std::max(of); }

// --- formulas ----------------------------------------------------------------------------------------------------------

// A formula's value; `what` begins the message where it has none.
template <class F>
auto value(const char* what, const F& formula) -> decltype(formula()) {
    try {
        return formula();
    } catch (const std::invalid_argument& error) {
        throw std::invalid_argument(std::string(what) + ": " + error.what());
    }
}

template <class F>
long long within(const char* what, const F& formula, long long smallest, long long largest) {
    const long long number = value(what, formula);
    if (number < smallest || number > largest) {
        fail(std::string(what) + " is " + std::to_string(number) + "; allowed are " + std::to_string(smallest) + " to " +
             std::to_string(largest));
    }
    return number;
}

// What stands where no value can: a choice that the kernel's parameter does not take.
template <class X>
X refused(const char* problem) {
    throw std::invalid_argument(problem);
}

// A formula that the plan gives a name to. Where it has no value, only those fail that ask for it.
class Let {
public:
    Let() = default;
    template <class F>
    Let(const char* what, const F& formula) {
        try {
            value_ = value(what, formula);
        } catch (const std::invalid_argument& error) {
            problem_ = error.what();
        }
    }
    long long operator()() const {
        if (!problem_.empty()) fail(problem_);
        return value_;
    }

private:
    long long value_ = 0;
    std::string problem_;
};

// What bounds the work that a plan may make.
class Bounds {
public:
    void step(long long terms) {
        if ((terms_ += terms) > MAX_TERMS) fail("the plan's formulas have too many terms; a group repeats too often");
    }
    void launch() {
        if (++launches_ > MAX_STEPS) fail("the plan makes too many launches; a group repeats too often");
    }
    static constexpr long long MAX_STEPS = 4096;

private:
    static constexpr long long MAX_TERMS = 1 << 17;
    long long terms_ = 0, launches_ = 0;
};

// --- memory ------------------------------------------------------------------------------------------------------------

struct Extent {
    const char* name = "";
    std::uintptr_t address = 0;
    long long bytes = 0;
};

inline long long bytes_of(long long element, std::initializer_list<long long> shape) {
    for (const long long size : shape) element = mul(element, size);
    return element;
}

// Kernels are judged with tensors that begin on 16 bytes, and of which none that is written shares memory with another.
inline void check_tensors(std::initializer_list<Extent> all, std::initializer_list<const char*> written) {
    for (const Extent& each : all) {
        if (each.bytes < 0) fail(std::string(each.name) + " has a negative size with these dims");
        if (each.address % 16 != 0) fail(std::string(each.name) + " does not begin on a multiple of 16 bytes");
        if (each.address == 0 && each.bytes > 0) fail(std::string(each.name) + " is a null pointer");
        const std::uintptr_t end = each.address + static_cast<std::uintptr_t>(each.bytes);
        for (const char* name : written) {
            for (const Extent& other : all) {
                if (std::strcmp(name, other.name) != 0 || std::strcmp(name, each.name) == 0) continue;
                if (other.address < end && each.address < other.address + static_cast<std::uintptr_t>(other.bytes)) {
                    fail(std::string(name) + ", which is written, shares memory with " + each.name);
                }
            }
        }
    }
}

// Scratch buffers lie one behind the other.
class Scratch {
public:
    static constexpr long long ALIGNMENT = 256;
    std::uintptr_t add(long long bytes) {
        const long long begin = total_;
        total_ = evo_plan::add(begin, mul(ceil_div(bytes, ALIGNMENT), ALIGNMENT));
        if ((held_ += bytes) > MOST_BYTES) fail("the plan's buffers take " + std::to_string(held_) + " bytes: too many");
        return static_cast<std::uintptr_t>(begin);
    }
    std::size_t total() const { return static_cast<std::size_t>(total_); }
    static constexpr long long MOST_BYTES = 1LL << 36;

private:
    long long total_ = 0, held_ = 0;
};

// --- arguments ---------------------------------------------------------------------------------------------------------

struct Argument {
    alignas(8) unsigned char bytes[8] = {};
};

class Arguments {
public:
    // An integer for a parameter of so many bytes, signed or not.
    template <int SIZE, class F>
    void integer(const char* what, const F& formula) {
        const long long number = value(what, formula);
        if constexpr (SIZE < 8) {
            if (number < -(1LL << (8 * SIZE - 1)) || number >= 1LL << (8 * SIZE)) {
                fail(std::string(what) + " is " + std::to_string(number) + ", which does not fit into " +
                     std::to_string(8 * SIZE) + " bits");
            }
        }
        const auto bits = static_cast<unsigned long long>(number);
        unsigned char bytes[SIZE];
        for (int i = 0; i < SIZE; ++i) bytes[i] = static_cast<unsigned char>(bits >> (8 * i));
        list_.emplace_back();
        std::memcpy(list_.back().bytes, bytes, SIZE);
    }
    template <class X>
    void copy(const X& value) {
        static_assert(sizeof(X) <= sizeof(Argument));
        list_.emplace_back();
        std::memcpy(list_.back().bytes, &value, sizeof(X));
    }
    std::vector<void*> pointers() {
        std::vector<void*> made;
        for (Argument& each : list_) made.push_back(each.bytes);
        return made;
    }

private:
    std::vector<Argument> list_;
};

}  // namespace evo_plan
}  // namespace
