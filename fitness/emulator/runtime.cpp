// Runs one CUDA launch on one CPU thread: a fiber for every thread of a block that has to wait for others, blocks one
// after the other. Whatever CUDA leaves open is drawn at random: the order of blocks, warps and lanes, and how far one
// of them gets ahead of the others. A thread runs until it must wait, so that who forgot a barrier meets memory that
// nobody has written yet.
//
// What is not emulated: threads that run at the same time, weakly ordered memory, rounding modes, flushed subnormals.
#include "types.hpp"
#include "../cpu/shim.hpp"
#include "runtime.hpp"
#include <csetjmp>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace evo {

// A buffer of the call, shared with the verifier, which fills the first three words in and reads the rest.
struct Control {
    std::uint32_t seed;
    std::uint32_t poison;   // the byte that shared memory is filled with before a block starts
    std::uint32_t told;     // bytes of text
    std::uint32_t launch;   // number of the launch, from 1
    std::uint32_t running;  // whether `thread` is of any meaning
    std::uint32_t lack;     // whether the text tells what the emulation cannot do
    Index block, thread;
    char text[1024];
};

constexpr std::size_t STACK_BYTES = 64 << 10, GUARD_BYTES = 64 << 10;
constexpr std::size_t WATCHED_BYTES = 4096;  // beyond dynamic shared memory
constexpr std::size_t ALIGNMENT = 4096;      // of a block's shared memory
constexpr std::uint64_t UNDEFINED = ~0ull;
constexpr std::uint64_t SHARED_WINDOW = 1024;  // where shared memory begins among its addresses, so that 0 is none of them
constexpr unsigned BARRIERS = 16;
// What fills the place of a copy that is under way: NaN, or about 0.75 in every floating type of 16 and 32 bits, since some
// kernels do again what did not come out finite.
constexpr int NAN_BYTE = 0xff, ORDINARY_BYTE = 0x3f;

inline const char* const KIND_NAMES[] = {
    "", "__syncthreads()", "__syncthreads_and()", "__syncthreads_or()", "__syncthreads_count()", "sync() of blocks",
    "__syncwarp()", "__activemask()", "__shfl_sync()", "__shfl_up_sync()", "__shfl_down_sync()", "__shfl_xor_sync()",
    "__all_sync()", "__any_sync()", "__ballot_sync()", "__match_any_sync()", "__match_all_sync()", "__reduce_add_sync()",
    "__reduce_min_sync()", "__reduce_max_sync()", "__reduce_min_sync()", "__reduce_max_sync()", "__reduce_and_sync()",
    "__reduce_or_sync()", "__reduce_xor_sync()", "",
};
constexpr bool is_barrier(Kind kind) { return kind >= Kind::SYNC && kind <= Kind::SYNC_COUNT; }

enum class State : std::uint8_t { NEW, READY, SPINNING, WAITING, DONE };

struct Fiber {
    jmp_buf context;
    ucontext_t first;
};

struct Thread {
    Index index;
    State state = State::NEW;
    Fiber* fiber = nullptr;
    // What it waits at, and what comes of that.
    Kind kind = Kind::NONE;
    unsigned mask = 0;
    int line = 0;
    int source = 0, width = 0;  // of shuffles
    std::uint64_t value = 0, result = 0;
    bool matched = false;
    unsigned number = 0, threads = 0;  // of a barrier: its number, and how many it is for; 0: all
    const char* name = "";             // of an operation
    Operation operation = nullptr;
    void* brought = nullptr;
    struct Copy { void* to; std::size_t bytes; char value[16]; };
    std::vector<std::vector<Copy>> copies{1};  // asynchronous ones, by batch; the last one is open
};

struct Block {
    Index index;
    unsigned rank;  // within its cluster or grid
    std::vector<Thread> threads;
    char* shared = nullptr;  // static variables, then dynamic shared memory
    unsigned live = 0;
    unsigned arrived[BARRIERS] = {};  // threads that are at a barrier and do not wait
};

static Control* control;
Launch launched;
static std::vector<Block> resident;  // blocks that can wait for each other: one, a cluster, or the grid
static Block* block;
static Thread* thread;
static jmp_buf scheduler;
static std::vector<Fiber*> idle_fibers;
static Fiber* started;
static std::uint64_t random_state;
static unsigned spins;
static char* shared_begin;  // of the block that runs

static std::size_t used_bytes() { return launched.static_bytes + launched.shared_bytes; }  // of shared memory

static std::uint64_t random_number() {
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return random_state * 0x2545f4914f6cdd1dull >> 16;
}

void fail(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(control->text, sizeof control->text, format, arguments);
    va_end(arguments);
    control->told = static_cast<std::uint32_t>(length < 0 ? 0 : length);
    std::abort();
}

void not_emulated(const char* what, int line) {
    control->lack = 1;
    fail("line %d: %s", line, what);
}

// --- fibers -----------------------------------------------------------------------------------------------------------

// The compiler must not carry anything that another fiber changes across a switch.
inline void forget_registers() { asm volatile("" ::: "memory"); }

__attribute__((noinline)) static void suspend() {
    forget_registers();
    if (_setjmp(thread->fiber->context) == 0) _longjmp(scheduler, 1);
    forget_registers();
}

static void fiber_main() {
    for (Fiber* self = started;;) {
        forget_registers();
        if (_setjmp(self->context) == 0) _longjmp(scheduler, 1);
        forget_registers();
        launched.call(launched.kernel, launched.values);
        thread->state = State::DONE;
    }
}

static Fiber* new_fiber() {
    Fiber* fiber = new Fiber;
    // Who takes more than its stack has meets a page that nobody may touch.
    void* memory = mmap(nullptr, GUARD_BYTES + STACK_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(static_cast<char*>(memory) + GUARD_BYTES, STACK_BYTES, PROT_READ | PROT_WRITE) != 0)
        fail("no memory is left for another thread's stack: too many threads wait for each other");
    getcontext(&fiber->first);
    fiber->first.uc_stack.ss_sp = static_cast<char*>(memory) + GUARD_BYTES;
    fiber->first.uc_stack.ss_size = STACK_BYTES;
    fiber->first.uc_link = nullptr;
    makecontext(&fiber->first, fiber_main, 0);
    started = fiber;
    forget_registers();
    if (_setjmp(scheduler) == 0) setcontext(&fiber->first);
    forget_registers();
    return fiber;
}

// Until it waits, spins or ends.
__attribute__((noinline)) static void resume(Thread& next) {
    if (!next.fiber) {
        if (idle_fibers.empty()) idle_fibers.push_back(new_fiber());
        next.fiber = idle_fibers.back();
        idle_fibers.pop_back();
    }
    next.state = State::READY;
    thread = &next;
    control->thread = next.index;
    control->running = 1;
    threadIdx = next.index;
    forget_registers();
    if (_setjmp(scheduler) == 0) _longjmp(next.fiber->context, 1);
    forget_registers();
    control->running = 0;
    if (next.state == State::DONE) {
        idle_fibers.push_back(next.fiber);
        next.fiber = nullptr;
        --block->live;
    }
}

// --- what threads call ------------------------------------------------------------------------------------------------

unsigned lane() { return static_cast<unsigned>(thread - block->threads.data()) % 32; }

static std::uint64_t wait_at(Kind kind, unsigned mask, std::uint64_t value, int line) {
    thread->kind = kind;
    thread->mask = mask;
    thread->value = value;
    thread->line = line;
    thread->state = State::WAITING;
    suspend();
    return thread->result;
}

static void check_barrier(unsigned number, unsigned threads, int line) {
    if (number >= BARRIERS || threads % 32 || threads > block->threads.size())
        fail("line %d: barrier %u for %u threads: there are %u of them, for whole warps of a block of %zu threads", line, number,
             threads, BARRIERS, block->threads.size());
}

unsigned barrier(Kind kind, int predicate, int line, unsigned number, unsigned threads) {
    check_barrier(number, threads, line);
    thread->number = number;
    thread->threads = threads;
    return static_cast<unsigned>(wait_at(kind, 0, predicate != 0, line));
}

void arrive_at_barrier(unsigned number, unsigned threads, int line) {
    check_barrier(number, threads, line);
    ++block->arrived[number];
}

void together(const char* name, Operation operation, void* brought, int line) {
    thread->name = name;
    thread->operation = operation;
    thread->brought = brought;
    wait_at(Kind::TOGETHER, ~0u, 0, line);
}

std::uint64_t collective(Kind kind, unsigned mask, std::uint64_t value, int line) {
    if (kind != Kind::ACTIVE && !(mask >> lane() & 1))
        fail("line %d: lane %u calls %s with the mask %#x, which it is not part of", line, lane(),
             KIND_NAMES[static_cast<int>(kind)], mask);
    return wait_at(kind, mask, value, line);
}

std::uint64_t shuffle(Kind kind, unsigned mask, std::uint64_t value, int source, int width, int line) {
    if (width < 1 || width > 32 || width & (width - 1))
        fail("line %d: %s over a width of %d, which must be 1, 2, 4, 8, 16 or 32", line, KIND_NAMES[static_cast<int>(kind)], width);
    thread->source = source;
    thread->width = width;
    return collective(kind, mask, value, line);
}

void tick(unsigned cost) {
    if ((spins += cost) < SPINS) return;
    spins = 0;
    thread->state = State::SPINNING;
    suspend();
}

bool matched() { return thread->matched; }
unsigned block_rank() { return block->rank; }
unsigned resident_blocks() { return static_cast<unsigned>(resident.size()); }

std::uint64_t shared_address(const void* at) {
    return static_cast<std::uint64_t>(static_cast<const char*>(at) - shared_begin) + SHARED_WINDOW;
}

bool is_shared(const void* at) {
    const auto offset = static_cast<const char*>(at) - shared_begin;
    return offset >= 0 && static_cast<std::size_t>(offset) < used_bytes();
}

void* shared_pointer(std::uint64_t address) { return shared_begin + (address - SHARED_WINDOW); }

void* shared_at(std::uint64_t address, std::size_t bytes, std::size_t alignment, const char* name, int line) {
    const std::size_t end = SHARED_WINDOW + used_bytes();
    if (address < SHARED_WINDOW || address > end || end - address < bytes)
        fail("line %d: %s at address %#llx of shared memory, which ends at %#zx%s", line, name,
             static_cast<unsigned long long>(address), end,
             address >> 32 ? " (a generic address? __cvta_generic_to_shared makes one of shared memory)" : "");
    if (address % alignment)
        fail("line %d: %s at address %#llx of shared memory, which is no multiple of %zu", line, name,
             static_cast<unsigned long long>(address), alignment);
    return shared_pointer(address);
}

void copy_later(void* to, const void* from, std::size_t bytes, std::size_t zeros) {
    Thread::Copy copy{to, bytes, {}};
    if (bytes > sizeof copy.value || zeros > bytes) fail("an asynchronous copy of %zu bytes, %zu of them zeros", bytes, zeros);
    if (zeros < bytes) std::memcpy(copy.value, from, bytes - zeros);
    std::memset(to, control->poison == NAN_BYTE ? NAN_BYTE : ORDINARY_BYTE, bytes);
    thread->copies.back().push_back(copy);
}

void commit_copies() { thread->copies.emplace_back(); }

void await_copies(std::size_t newest) {
    auto& batches = thread->copies;
    while (batches.size() - 1 > newest) {
        for (const auto& copy : batches.front()) std::memcpy(copy.to, copy.value, copy.bytes);
        batches.erase(batches.begin());
    }
}

// --- warps ------------------------------------------------------------------------------------------------------------

struct Warp {
    Thread* lanes;
    unsigned count;
    template <class Test> unsigned where(Test test) const {
        unsigned found = 0;
        for (unsigned i = 0; i < count; ++i) found |= unsigned{test(lanes[i])} << i;
        return found;
    }
};

static unsigned source_of(const Thread& t, unsigned lane) {
    const int width = t.width, first = static_cast<int>(lane) & ~(width - 1), self = static_cast<int>(lane);
    // Up stays within its group, down and xor reach back but not beyond.
    int from = self ^ t.source;
    if (t.kind == Kind::SHUFFLE) from = first | (t.source & (width - 1));
    if (t.kind == Kind::UP) from = self - t.source < first ? self : self - t.source;
    if (t.kind == Kind::DOWN) from = self + t.source;
    return static_cast<unsigned>(from >= first + width ? self : from);
}

static std::uint64_t reduced(Kind kind, std::uint64_t a, std::uint64_t b) {
    const auto x = static_cast<std::uint32_t>(a), y = static_cast<std::uint32_t>(b);
    const auto sx = static_cast<std::int32_t>(x), sy = static_cast<std::int32_t>(y);
    switch (kind) {
        case Kind::ADD: return x + y;
        case Kind::MIN: return x < y ? x : y;
        case Kind::MAX: return x > y ? x : y;
        case Kind::SIGNED_MIN: return static_cast<std::uint32_t>(sx < sy ? sx : sy);
        case Kind::SIGNED_MAX: return static_cast<std::uint32_t>(sx > sy ? sx : sy);
        case Kind::BIT_AND: return x & y;
        case Kind::BIT_OR: return x | y;
        default: return x ^ y;
    }
}

static const Warp* operating;

void blame(unsigned lane) {
    control->thread = operating->lanes[lane].index;
    control->running = 1;
}

static void operate(Warp& warp, unsigned members) {
    const Thread& first = warp.lanes[__builtin_ctz(members)];
    if (members != ~0u)
        fail("line %d: %s needs all 32 lanes of a warp; %d of them are there", first.line, first.name, __builtin_popcount(members));
    void* brought[32];
    for (unsigned i = 0; i < 32; ++i) brought[i] = warp.lanes[i].brought;
    operating = &warp;
    first.operation(brought, first.line);
    for (unsigned i = 0; i < 32; ++i) warp.lanes[i].state = State::READY;
}

static void finish(Warp& warp, unsigned members, Kind kind) {
    if (kind == Kind::TOGETHER) return operate(warp, members);
    std::uint64_t values[32], together = 0;
    unsigned votes = 0, first = static_cast<unsigned>(__builtin_ctz(members));
    for (unsigned i = 0; i < warp.count; ++i) {
        values[i] = members >> i & 1 ? warp.lanes[i].value : UNDEFINED;
        if (!(members >> i & 1)) continue;
        votes |= unsigned{values[i] != 0} << i;
        together = i == first ? values[i] : reduced(kind, together, values[i]);
    }
    for (unsigned i = 0; i < warp.count; ++i) {
        if (!(members >> i & 1)) continue;
        Thread& t = warp.lanes[i];
        unsigned equal = 0;
        switch (kind) {
            case Kind::SYNC_WARP: break;
            case Kind::ACTIVE: t.result = members; break;
            case Kind::SHUFFLE: case Kind::UP: case Kind::DOWN: case Kind::XOR: {
                const unsigned from = source_of(t, i);
                t.result = from < warp.count ? values[from] : UNDEFINED;
                break;
            }
            case Kind::ALL: t.result = votes == members; break;
            case Kind::ANY: t.result = votes != 0; break;
            case Kind::BALLOT: t.result = votes; break;
            case Kind::MATCH_ANY: case Kind::MATCH_ALL:
                for (unsigned j = 0; j < warp.count; ++j) equal |= unsigned{(members >> j & 1) && values[j] == t.value} << j;
                t.matched = equal == members;
                t.result = kind == Kind::MATCH_ANY || t.matched ? equal : 0;
                break;
            default: t.result = together;
        }
        t.state = State::READY;
    }
}

// Lets those go on who wait for nobody any more.
static bool release(Warp& warp) {
    bool released = false;
    const unsigned live = warp.where([](const Thread& t) { return t.state != State::DONE; });
    const unsigned moving = warp.where([](const Thread& t) { return t.state <= State::SPINNING; });
    unsigned waiting = warp.where([](const Thread& t) { return t.state == State::WAITING && t.kind > Kind::ALL_BLOCKS; });
    while (waiting) {
        const Thread& first = warp.lanes[__builtin_ctz(waiting)];
        const Kind kind = first.kind;
        const unsigned members = waiting & warp.where([&](const Thread& t) {
            return t.kind == kind && t.mask == first.mask && (t.line == first.line || kind == Kind::SYNC_WARP) &&
                   (kind != Kind::TOGETHER || t.operation == first.operation);
        });
        waiting &= ~members;
        if (kind == Kind::ACTIVE ? moving != 0 : (first.mask & live & ~members) != 0) continue;
        finish(warp, members, kind);
        released = true;
    }
    return released;
}

static bool run_warp(Warp warp) {
    bool ran = false, again;
    do {
        again = false;
        const unsigned turn = static_cast<unsigned>(random_number() % warp.count), backwards = random_number() & 1;
        for (unsigned i = 0; i < warp.count; ++i) {
            const unsigned at = (turn + (backwards ? warp.count - i : i)) % warp.count;
            if (warp.lanes[at].state > State::READY) continue;
            resume(warp.lanes[at]);
            ran = again = true;
        }
        again |= release(warp);
    } while (again);
    return ran;
}

// --- blocks -----------------------------------------------------------------------------------------------------------

// "32 threads wait at __syncthreads() in line 7, 3 have ended"
static void describe(char* text, std::size_t size) {
    struct Group { State state; Kind kind; int line; unsigned count; const char* name; };
    std::vector<Group> groups;
    for (const Block& b : resident)
        for (const Thread& t : b.threads) {
            const bool done = t.state == State::DONE;
            Group* found = nullptr;
            for (Group& g : groups)
                if (g.state == t.state && (done || (g.kind == t.kind && g.line == t.line))) found = &g;
            if (found) ++found->count;
            else groups.push_back({t.state, t.kind, t.line, 1, t.kind == Kind::TOGETHER ? t.name : KIND_NAMES[static_cast<int>(t.kind)]});
        }
    std::size_t used = 0;
    for (const Group& g : groups) {
        if (used + 80 > size) break;
        const char* comma = used ? ", " : "";
        if (g.state == State::DONE) used += static_cast<std::size_t>(std::snprintf(text + used, size - used, "%s%u ended", comma, g.count));
        else used += static_cast<std::size_t>(std::snprintf(text + used, size - used, "%s%u wait at %s in line %d", comma, g.count,
                                                            g.name, g.line));
    }
}

[[noreturn]] static void fail_for_ever(const char* problem) {
    char text[600];
    describe(text, sizeof text);
    fail("%s: of its threads %s", problem, text);
}

static bool waits_at_barrier(const Thread& t) { return t.state == State::WAITING && is_barrier(t.kind); }

static void check_one_place(const Block& b, unsigned number) {
    for (std::size_t i = 0; i < b.threads.size(); ++i) {
        const Thread &one = b.threads[i], &first = b.threads[i / 32 * 32];
        const bool there = waits_at_barrier(one) && one.number == number, first_there = waits_at_barrier(first) && first.number == number;
        if (there != first_there || (there && (one.line != first.line || one.kind != first.kind || one.threads != first.threads)))
            fail_for_ever("threads of one warp wait at different barriers");
    }
}

// Of a block, where all of those that it is for have come to one. True: they may go on.
static bool release_barrier(Block& b, unsigned number) {
    unsigned there = 0, votes = 0, wanted = 0;
    for (const Thread& t : b.threads)
        if (waits_at_barrier(t) && t.number == number) ++there, votes += t.value != 0, wanted = t.threads;
    if (there == 0 || there + b.arrived[number] < (wanted ? wanted : b.live)) return false;
    if (!wanted && b.live < b.threads.size()) fail_for_ever("a barrier that not all threads of the block reach");
    if (wanted && there + b.arrived[number] > wanted) fail_for_ever("more threads come to a barrier than it is for");
    check_one_place(b, number);
    b.arrived[number] = 0;
    for (Thread& t : b.threads) {
        if (!waits_at_barrier(t) || t.number != number) continue;
        const bool all = votes == there, any = votes != 0;
        t.result = t.kind == Kind::SYNC_AND ? all : t.kind == Kind::SYNC_OR ? any : t.kind == Kind::SYNC_COUNT ? votes : 0;
        t.state = State::READY;
    }
    return true;
}

static bool release_barriers(Block& b) {
    unsigned numbers = 0;
    for (const Thread& t : b.threads)
        if (waits_at_barrier(t)) numbers |= 1u << t.number;
    bool released = false;
    for (unsigned left = numbers; left; left &= left - 1) released |= release_barrier(b, static_cast<unsigned>(__builtin_ctz(left)));
    return released;
}

// As far as it comes without other blocks. False: nothing moved.
static bool run_block(Block& b) {
    block = &b;
    shared_begin = b.shared;
    blockIdx = b.index;
    control->block = b.index;
    const unsigned warps = static_cast<unsigned>((b.threads.size() + 31) / 32);
    bool ran = false;
    for (;;) {
        bool again = false;
        const unsigned turn = static_cast<unsigned>(random_number() % warps);
        const unsigned step = warps > 1 && random_number() & 1 ? warps - 1 : 1;
        for (unsigned i = 0; i < warps; ++i) {
            const std::size_t first = 32 * ((turn + i * step) % warps), left = b.threads.size() - first;
            again |= run_warp({&b.threads[first], static_cast<unsigned>(left < 32 ? left : 32)});
        }
        ran |= again;
        if (release_barriers(b)) ran = again = true;
        if (!again) return ran;
    }
}

static void poison_shared(const Block& b) {
    std::memset(b.shared, static_cast<int>(control->poison), used_bytes() + WATCHED_BYTES);
}

static void check_shared(const Block& b) {
    for (std::size_t i = 0; i < WATCHED_BYTES; ++i)
        if (static_cast<unsigned char>(b.shared[used_bytes() + i]) != control->poison)
            fail("block [%u, %u, %u] wrote %zu bytes past the end of its %zu bytes of dynamic shared memory", b.index.x,
                 b.index.y, b.index.z, i, launched.shared_bytes);
}

void* mapped_shared(void* pointer, unsigned rank) {
    if (rank >= resident.size()) fail("there is no block %u in a cluster of %zu", rank, resident.size());
    return resident[rank].shared + (static_cast<char*>(pointer) - shared_begin);
}

// Blocks that may wait for each other, to their end.
static void run_resident() {
    for (Block& b : resident) {
        b.live = static_cast<unsigned>(b.threads.size());
        std::memset(b.arrived, 0, sizeof b.arrived);
        poison_shared(b);
    }
    for (bool over = false; !over;) {
        bool ran = false;
        const std::size_t turn = random_number() % resident.size();
        for (std::size_t i = 0; i < resident.size(); ++i) {
            Block& b = resident[(turn + i) % resident.size()];
            ran |= run_block(b);
            if (b.live) continue;
            check_shared(b);
            poison_shared(b);  // a block that has ended has none that others could read
        }
        over = true;
        std::size_t there = 0, all = 0, live = 0;
        for (Block& b : resident) {
            over &= b.live == 0;
            live += b.live;
            all += b.threads.size();
            for (Thread& t : b.threads) {
                there += t.state == State::WAITING && t.kind == Kind::ALL_BLOCKS;
                if (t.state == State::SPINNING) t.state = State::READY, ran = true;
            }
        }
        if (there && there == live) {
            if (live < all) fail_for_ever("a barrier that not all threads of all blocks reach");
            for (Block& b : resident) for (Thread& t : b.threads) t.state = State::READY;
            ran = true;
        }
        if (!ran && !over) fail_for_ever("a deadlock");
    }
}

static Index index_of(unsigned long long n, Index size) {
    return {static_cast<unsigned>(n % size.x), static_cast<unsigned>(n / size.x % size.y),
            static_cast<unsigned>(n / size.x / size.y)};
}

static void prepare(Block& b, Index index, unsigned rank) {
    b.index = index;
    b.rank = rank;
    b.threads.resize(product(launched.block));
    for (std::size_t i = 0; i < b.threads.size(); ++i) {
        Thread& t = b.threads[i];
        t.index = index_of(i, launched.block);
        t.state = State::NEW;
        t.kind = Kind::NONE;
        if (t.copies.size() != 1 || !t.copies[0].empty()) t.copies.assign(1, {});
    }
}

// Every number below `count` once, in an order that is drawn.
template <class Visit> static void in_random_order(unsigned long long count, Visit visit) {
    const auto divides = [](unsigned long long a, unsigned long long b) {
        while (b) std::swap(a %= b, b);
        return a;
    };
    unsigned long long step = count > 2 ? 1 + random_number() % (count - 1) : 1;
    while (divides(count, step) != 1) ++step;
    const unsigned long long first = random_number() % count;
    for (unsigned long long i = 0; i < count; ++i)
        visit(static_cast<unsigned long long>((static_cast<unsigned __int128>(i) * step + first) % count));
}

void run(const Launch& given, Control* told, unsigned number) {
    launched = given;
    control = told;
    control->launch = number;
    random_state = control->seed * 0x9e3779b97f4a7c15ull + control->launch + 1;
    blockDim = launched.block;
    gridDim = launched.grid;
    const Index one{1, 1, 1}, size = launched.cooperative ? launched.grid : launched.cluster.x ? launched.cluster : one;
    const Index sets{launched.grid.x / size.x, launched.grid.y / size.y, launched.grid.z / size.z};
    resident.resize(product(size));
    for (Block& b : resident) {
        const std::size_t bytes = (used_bytes() + WATCHED_BYTES + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        std::free(b.shared);
        b.shared = static_cast<char*>(std::aligned_alloc(ALIGNMENT, bytes));
        if (!b.shared) fail("no memory is left for the shared memory of %zu blocks", resident.size());
    }
    in_random_order(product(sets), [&](unsigned long long number) {
        const Index at = index_of(number, sets);
        for (unsigned i = 0; i < resident.size(); ++i) {
            const Index in = index_of(i, size);
            prepare(resident[i], {at.x * size.x + in.x, at.y * size.y + in.y, at.z * size.z + in.z}, i);
        }
        run_resident();
    });
}

}  // namespace evo

// --- shared memory ----------------------------------------------------------------------------------------------------

// Where a variable in thread-local storage is, which the compiler takes `__shared__` ones for and asks of the loader by
// another name: no loader knows a kernel, whose threads take turns on this one.
struct Variable {
    unsigned long module, offset;
};
extern "C" void* evo_shared_variable(const Variable* wanted) { return evo::shared_begin + wanted->offset; }

// --- what the compiler's checks found ---------------------------------------------------------------------------------

namespace evo::check {
struct Place { const char* file; std::uint32_t line, column; };
struct Type { std::uint16_t kind, info; char name[1]; };
struct Mismatch { Place place; const Type* type; unsigned char log_alignment, kind; };
struct Bounds { Place place; const Type *array, *index; };
struct Arithmetic { Place place; const Type *left, *right; };

static long long number(const Type* type, std::uintptr_t value) {
    const int unused = 64 - (1 << (type->info >> 1));
    if (unused <= 0) return static_cast<long long>(value);
    return type->info & 1 ? static_cast<long long>(value << unused) >> unused : static_cast<long long>(value);
}
}  // namespace evo::check

extern "C" {
void __ubsan_handle_type_mismatch_v1(evo::check::Mismatch* found, std::uintptr_t at) {
    const unsigned alignment = 1u << found->log_alignment;
    evo::fail("line %u: a misaligned access: %s at %u bytes beyond a multiple of %u", found->place.line, found->type->name,
              static_cast<unsigned>(at % alignment), alignment);
}
void __ubsan_handle_out_of_bounds(evo::check::Bounds* found, std::uintptr_t index) {
    evo::fail("line %u: index %lld is out of bounds of the array %s", found->place.line,
              evo::check::number(found->index, index), found->array->name);
}
void __ubsan_handle_shift_out_of_bounds(
    evo::check::Arithmetic* found, std::uintptr_t, std::uintptr_t by) {
    evo::fail("line %u: a shift of %s by %lld bits", found->place.line, found->left->name, evo::check::number(found->right, by));
}
void __ubsan_handle_divrem_overflow(
    evo::check::Arithmetic* found, std::uintptr_t, std::uintptr_t) {
    evo::fail("line %u: a division by zero, or of the smallest number by -1", found->place.line);
}
}
