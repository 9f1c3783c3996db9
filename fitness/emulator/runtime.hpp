// What device code and launches ask of runtime.cpp, which is part of the process that maps them (see build.py).
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace evo {

using Index = uint3;
constexpr unsigned long long product(Index size) { return 1ull * size.x * size.y * size.z; }

enum class Kind {
    NONE, SYNC, SYNC_AND, SYNC_OR, SYNC_COUNT, ALL_BLOCKS,  // barriers
    SYNC_WARP, ACTIVE, SHUFFLE, UP, DOWN, XOR, ALL, ANY, BALLOT, MATCH_ANY, MATCH_ALL,
    ADD, MIN, MAX, SIGNED_MIN, SIGNED_MAX, BIT_AND, BIT_OR, BIT_XOR,
    TOGETHER,  // see `together`
};
struct Launch {
    void (*call)(void (*)(), void* const*);
    void (*kernel)();
    void* const* values;
    Index grid, block, cluster;
    std::size_t shared_bytes;
    bool cooperative;
    std::size_t static_bytes;  // of shared memory, before the dynamic part
};

extern Launch launched;
struct Control;

void run(const Launch& given, Control* told, unsigned number);
[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char* format, ...);
// Ends the call for the emulation's own lack: no word about the kernel.
[[noreturn]] void not_emulated(const char* what, int line);

unsigned lane();
// Of the whole block, or of the first `threads` to come to barrier `number` (PTX: bar.sync a, b).
unsigned barrier(Kind kind, int predicate, int line, unsigned number = 0, unsigned threads = 0);
void arrive_at_barrier(unsigned number, unsigned threads, int line);
std::uint64_t collective(Kind kind, unsigned mask, std::uint64_t value, int line);
std::uint64_t shuffle(Kind kind, unsigned mask, std::uint64_t value, int source, int width, int line);
bool matched();  // by the last MATCH_ALL
// What all 32 lanes of a warp do at once: when the last one has come, `operation` gets what each of them has brought.
using Operation = void (*)(void* const (&brought)[32], int line);
void together(const char* name, Operation operation, void* brought, int line);
void blame(unsigned lane);  // in what `fail` says next within an operation
// Who polls memory must let others run now and then.
void tick(unsigned cost = 1);
constexpr unsigned SPINS = 2048;

unsigned block_rank();  // within its cluster or grid
unsigned resident_blocks();
// Where a pointer into this block's shared memory points to in that of another one.
void* mapped_shared(void* pointer, unsigned rank);

// Addresses of the shared window, as `cvta` and PTX know them, and back; `shared_at` refuses what lies outside.
std::uint64_t shared_address(const void* at);
void* shared_pointer(std::uint64_t address);
bool is_shared(const void* at);
void* shared_at(std::uint64_t address, std::size_t bytes, std::size_t alignment, const char* name, int line);

// An asynchronous copy. Its place holds what nobody wants until who began it has waited.
void copy_later(void* to, const void* from, std::size_t bytes, std::size_t zeros);
void commit_copies();
void await_copies(std::size_t newest);

// The kernel's arguments are followed by grid, block, cluster (x, y, z each), bytes of dynamic shared memory, whether it
// is cooperative, the launch's number, bytes of static shared memory, and the control buffer.
template <class R, class... A> void launch(R (*kernel)(A...), void* const* values) {
    const auto word = [&](std::size_t i) { return *static_cast<const std::int64_t*>(values[sizeof...(A) + i]); };
    const auto index = [&](std::size_t i) {
        return Index{static_cast<unsigned>(word(i)), static_cast<unsigned>(word(i + 1)), static_cast<unsigned>(word(i + 2))};
    };
    const auto call = [](void (*any)(), void* const* arguments) {
        evo_shim::call(reinterpret_cast<R (*)(A...)>(any), arguments);
    };
    run({call, reinterpret_cast<void (*)()>(kernel), values, index(0), index(3), index(6),
         static_cast<std::size_t>(word(9)), word(10) != 0, static_cast<std::size_t>(word(12))},
        reinterpret_cast<Control*>(word(13)), static_cast<unsigned>(word(11)));
}

}  // namespace evo

// Each launch of the plan, callable with untyped arguments, and its table of parameters (see ../../cpu/shim.hpp).
#define EVO_EMULATE(NUMBER, ...)                                                            \
    extern "C" {                                                                            \
    extern const decltype(evo_shim::parameters(&__VA_ARGS__)) evo_params_##NUMBER;          \
    __attribute__((used)) const decltype(evo_shim::parameters(&__VA_ARGS__))                \
        evo_params_##NUMBER = evo_shim::parameters(&__VA_ARGS__);                           \
    __attribute__((used, visibility("default"))) void evo_launch_##NUMBER(void* const* values) { \
        evo::launch(&__VA_ARGS__, values);                                                  \
    }                                                                                       \
    }
