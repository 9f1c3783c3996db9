// Sees races of a kernel: what the compiler puts in front of every access (-fsanitize=thread) ends here, and so does every
// call by which OpenMP orders threads. libtsan knows nothing of libgomp; this knows both.
//
// Each thread has a vector clock. Two accesses of different threads to a byte race if one of them writes, not both are
// atomic, and no chain of what is below orders them: fork and join of teams, barriers, critical sections of one name,
// locks, atomic accesses to the same word, ordered regions, tasks. Where the order that a construct makes is only partly
// known (tasks, fences, doacross) more counts as ordered than is: what is said to race does, what is not said may.
//
// It is preloaded into the runner, and the kernel's object calls it by names with the prefix `races_`.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <omp.h>
#include <sched.h>
#include <sys/mman.h>

namespace {

constexpr int THREADS = 16;
constexpr std::size_t WORDS = std::size_t{1} << 18, MOST_FILLED = WORDS / 4 * 3;
constexpr int MOST_TOLD = 4;
constexpr std::int64_t MAGIC = 0x7261636573;
enum State : std::int64_t { WHOLE, MANY_THREADS, MUCH_MEMORY };

struct Clock {
    std::uint32_t at[THREADS];
    void take(const Clock& other) {
        for (int t = 0; t < THREADS; ++t)
            if (other.at[t] > at[t]) at[t] = other.at[t];
    }
};

struct Spin {
    std::atomic<bool> held{false};
    void lock() {
        while (held.exchange(true, std::memory_order_acquire)) sched_yield();
    }
    void unlock() { held.store(false, std::memory_order_release); }
};

struct Held {
    Spin& spin;
    explicit Held(Spin& s) : spin(s) { spin.lock(); }
    ~Held() { spin.unlock(); }
};

// The last access of one thread of one kind to a word: of which bytes, and by which instruction.
struct Access {
    std::uint32_t at, pc;
    std::uint8_t bytes;
    bool atomic;
};

// A word of memory that was accessed, or is locked by.
struct Word {
    std::atomic<std::uintptr_t> address;
    Spin spin;
    Clock sync;
    Access reads[THREADS], writes[THREADS];
};

struct Sync {
    Spin spin;
    Clock clock;
};

struct Team {
    void (*fn)(void*);
    void* data;
    Sync fork, join, barriers[2], singles[2], tasks, ordered;
    std::atomic<int> started{0};
};

struct Told {
    std::uint32_t first, second;
    bool first_writes, second_writes;
};

Word* words() {  // of this process, from its first access on
    static Word* const all = [] {
        void* made = mmap(nullptr, WORDS * sizeof(Word), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return made == MAP_FAILED ? nullptr : static_cast<Word*>(made);
    }();
    return all;
}

std::atomic<int> threads{0};
std::atomic<std::size_t> filled{0};
std::atomic<std::int64_t> state{WHOLE};
Spin telling;
Told told[MOST_TOLD];
int told_count = 0;
Sync fences, unnamed, atomics;

struct Thread {
    int number;
    Clock clock{};
    Team* team = nullptr;
    unsigned barriers = 0, singles = 0;
    Thread() : number(threads.fetch_add(1)) {
        if (number >= THREADS) {
            state = MANY_THREADS;
            number = THREADS - 1;
        }
        clock.at[number] = 1;
    }
};

Thread& self() {
    thread_local Thread mine;
    return mine;
}

void acquire(Sync& from) {
    Held held(from.spin);
    self().clock.take(from.clock);
}

void release(Sync& to) {
    Thread& me = self();
    Held held(to.spin);
    to.clock.take(me.clock);
    ++me.clock.at[me.number];
}

Word* word(std::uintptr_t address) {
    Word* const all = words();
    if (!all) return nullptr;
    for (std::size_t i = address * 0x9E3779B97F4A7C15u >> 46;; i = (i + 1) % WORDS) {
        std::uintptr_t there = all[i].address.load(std::memory_order_acquire);
        if (there == address) return &all[i];
        if (there) continue;
        if (filled.load() >= MOST_FILLED) {
            state = MUCH_MEMORY;
            return nullptr;
        }
        if (all[i].address.compare_exchange_strong(there, address)) {
            ++filled;
            return &all[i];
        }
        if (there == address) return &all[i];
    }
}

void tell(const Access& other, bool other_writes, std::uint32_t pc, bool writes) {
    Held held(telling);
    for (int i = 0; i < told_count; ++i)
        if ((told[i].first == other.pc && told[i].second == pc) || (told[i].first == pc && told[i].second == other.pc)) return;
    if (told_count < MOST_TOLD) told[told_count++] = {other.pc, pc, other_writes, writes};
}

// With the word held.
void accessed(Word& there, std::uint8_t bytes, bool writes, bool atomic, std::uint32_t pc) {
    Thread& me = self();
    Access& mine = (writes ? there.writes : there.reads)[me.number];
    const std::uint32_t now = me.clock.at[me.number];
    if (mine.at == now && (mine.bytes & bytes) == bytes && mine.atomic == atomic) return;
    for (int t = 0; t < THREADS; ++t) {
        if (t == me.number) continue;
        const Access &write = there.writes[t], &read = there.reads[t];
        if (write.bytes & bytes && write.at > me.clock.at[t] && !(atomic && write.atomic)) tell(write, true, pc, writes);
        if (writes && read.bytes & bytes && read.at > me.clock.at[t] && !(atomic && read.atomic)) tell(read, false, pc, writes);
    }
    const bool joins = mine.at == now && mine.atomic == atomic;
    mine = {now, pc, static_cast<std::uint8_t>(joins ? mine.bytes | bytes : bytes), atomic};
}

std::uint8_t bytes_of(std::uintptr_t begin, std::uintptr_t end, std::uintptr_t at) {
    unsigned bytes = 0;
    for (unsigned i = 0; i < 8; ++i)
        if (at + i >= begin && at + i < end) bytes |= 1u << i;
    return static_cast<std::uint8_t>(bytes);
}

void plain(const void* address, std::size_t size, bool writes, const void* from) {
    const auto begin = reinterpret_cast<std::uintptr_t>(address), end = begin + size;
    for (std::uintptr_t at = begin & ~std::uintptr_t{7}; at < end; at += 8) {
        Word* there = word(at);
        if (!there) return;
        Held held(there->spin);
        accessed(*there, bytes_of(begin, end, at), writes, false, static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(from)));
    }
}

// An atomic access takes what earlier ones of the word knew, and leaves what it knows. A load does too: of an update that
// the compiler makes a loop of, such as that of a float, the load alone is told, so that what only reads such a word plainly
// is not seen to race with it.
template <class Action>
auto atomically(const volatile void* address, std::size_t size, bool writes, const void* from, Action action) {
    const auto begin = reinterpret_cast<std::uintptr_t>(address), at = begin & ~std::uintptr_t{7};
    Word* there = word(at);
    if (!there) return action();
    Held held(there->spin);
    Thread& me = self();
    me.clock.take(there->sync);
    accessed(*there, bytes_of(begin, begin + size, at), writes, true, static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(from)));
    const auto result = action();
    there->sync.take(me.clock);
    ++me.clock.at[me.number];
    return result;
}

void lock_taken(const void* lock) {
    if (Word* there = word(reinterpret_cast<std::uintptr_t>(lock) | 1)) {  // no word of data
        Held held(there->spin);
        self().clock.take(there->sync);
    }
}

void lock_left(const void* lock) {
    if (Word* there = word(reinterpret_cast<std::uintptr_t>(lock) | 1)) {
        Thread& me = self();
        Held held(there->spin);
        there->sync.take(me.clock);
        ++me.clock.at[me.number];
    }
}

// --- teams ------------------------------------------------------------------------------------------------------------

// Every thread begins when all are there: else the first one may have taken all iterations before the second one comes.
void begin_together(Team& team) {
    ++team.started;
    for (const int all = omp_get_num_threads(); team.started.load() < all;) sched_yield();
}

void in_team(void* of) {
    Team& team = *static_cast<Team*>(of);
    Thread& me = self();
    Team* const outer = me.team;
    const unsigned barriers = me.barriers, singles = me.singles;
    me.team = &team;
    me.barriers = me.singles = 0;
    acquire(team.fork);
    begin_together(team);
    team.fn(team.data);
    release(team.join);
    me.team = outer;
    me.barriers = barriers;
    me.singles = singles;
}

template <class Start>
auto with_team(void (*fn)(void*), void* data, Start start) {
    Team team{};
    team.fn = fn;
    team.data = data;
    release(team.fork);
    start(&in_team, &team);
    acquire(team.join);
    acquire(team.tasks);
}

template <class Wait>
auto meeting(Sync (Team::*which)[2], unsigned Thread::*count, Wait wait) {
    Thread& me = self();
    Team* const team = me.team;
    if (!team) return wait();
    Sync& here = (team->*which)[me.*count % 2];
    ++(me.*count);
    release(here);
    struct After {
        Sync& here;
        Team& team;
        ~After() {
            acquire(here);
            acquire(team.tasks);
        }
    } after{here, *team};
    return wait();
}

// --- tasks ------------------------------------------------------------------------------------------------------------

struct Task {
    void (*fn)(void*);
    Team* team;
    void* data;
    void* block;
};

void task_runs(void* of) {
    const Task task = *static_cast<Task*>(of);
    if (task.team) acquire(task.team->tasks);
    task.fn(task.data);
    if (task.team) release(task.team->tasks);
    std::free(task.block);
}

}  // namespace

extern "C" {

// --- accesses ---------------------------------------------------------------------------------------------------------

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void** at, void*) { plain(at, sizeof *at, true, __builtin_return_address(0)); }
void __tsan_vptr_read(void** at) { plain(at, sizeof *at, false, __builtin_return_address(0)); }
void __tsan_read_range(void* at, unsigned long size) { plain(at, size, false, __builtin_return_address(0)); }
void __tsan_write_range(void* at, unsigned long size) { plain(at, size, true, __builtin_return_address(0)); }
#define ACCESSES(SIZE)                                                                                     \
    void __tsan_read##SIZE(void* at) { plain(at, SIZE, false, __builtin_return_address(0)); }              \
    void __tsan_write##SIZE(void* at) { plain(at, SIZE, true, __builtin_return_address(0)); }              \
    void __tsan_unaligned_read##SIZE(void* at) { plain(at, SIZE, false, __builtin_return_address(0)); }    \
    void __tsan_unaligned_write##SIZE(void* at) { plain(at, SIZE, true, __builtin_return_address(0)); }
ACCESSES(1) ACCESSES(2) ACCESSES(4) ACCESSES(8) ACCESSES(16)

void* races_memcpy(void* to, const void* from, std::size_t size) {
    plain(from, size, false, __builtin_return_address(0));
    plain(to, size, true, __builtin_return_address(0));
    return std::memcpy(to, from, size);
}
void* races_memmove(void* to, const void* from, std::size_t size) {
    plain(from, size, false, __builtin_return_address(0));
    plain(to, size, true, __builtin_return_address(0));
    return std::memmove(to, from, size);
}
void* races_memset(void* to, int value, std::size_t size) {
    plain(to, size, true, __builtin_return_address(0));
    return std::memset(to, value, size);
}

#define FETCHES(BITS, TYPE, NAME)                                                            \
    TYPE __tsan_atomic##BITS##_fetch_##NAME(volatile TYPE* at, TYPE value, int) {            \
        return atomically(at, sizeof(TYPE), true, __builtin_return_address(0),               \
                          [&] { return __atomic_fetch_##NAME(at, value, __ATOMIC_SEQ_CST); }); \
    }
#define EXCHANGES(BITS, TYPE, NAME)                                                                             \
    int __tsan_atomic##BITS##_compare_exchange_##NAME(volatile TYPE* at, TYPE* old, TYPE value, int, int) {     \
        return atomically(at, sizeof(TYPE), true, __builtin_return_address(0), [&] {                            \
            return __atomic_compare_exchange_n(at, old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);      \
        });                                                                                                     \
    }
#define ATOMICS(BITS, TYPE)                                                                                     \
    TYPE __tsan_atomic##BITS##_load(const volatile TYPE* at, int) {                                             \
        return atomically(at, sizeof(TYPE), false, __builtin_return_address(0),                                 \
                          [&] { return __atomic_load_n(at, __ATOMIC_SEQ_CST); });                               \
    }                                                                                                           \
    void __tsan_atomic##BITS##_store(volatile TYPE* at, TYPE value, int) {                                      \
        atomically(at, sizeof(TYPE), true, __builtin_return_address(0),                                         \
                   [&] { return __atomic_store_n(at, value, __ATOMIC_SEQ_CST), 0; });                           \
    }                                                                                                           \
    TYPE __tsan_atomic##BITS##_exchange(volatile TYPE* at, TYPE value, int) {                                   \
        return atomically(at, sizeof(TYPE), true, __builtin_return_address(0),                                  \
                          [&] { return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST); });                    \
    }                                                                                                           \
    TYPE __tsan_atomic##BITS##_compare_exchange_val(volatile TYPE* at, TYPE old, TYPE value, int, int) {        \
        return atomically(at, sizeof(TYPE), true, __builtin_return_address(0), [&] {                            \
            __atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);            \
            return old;                                                                                         \
        });                                                                                                     \
    }                                                                                                           \
    EXCHANGES(BITS, TYPE, strong) EXCHANGES(BITS, TYPE, weak)                                                   \
    FETCHES(BITS, TYPE, add) FETCHES(BITS, TYPE, sub) FETCHES(BITS, TYPE, and) FETCHES(BITS, TYPE, or)          \
    FETCHES(BITS, TYPE, xor) FETCHES(BITS, TYPE, nand)
ATOMICS(8, std::uint8_t) ATOMICS(16, std::uint16_t) ATOMICS(32, std::uint32_t) ATOMICS(64, std::uint64_t)
void __tsan_atomic_thread_fence(int) {
    acquire(fences);
    release(fences);
}
void __tsan_atomic_signal_fence(int) {}

// --- OpenMP -----------------------------------------------------------------------------------------------------------

void GOMP_barrier();
bool GOMP_barrier_cancel();
void GOMP_loop_end();
bool GOMP_loop_end_cancel();
void GOMP_sections_end();
bool GOMP_sections_end_cancel();
void* GOMP_single_copy_start();
void GOMP_single_copy_end(void*);
void GOMP_critical_start();
void GOMP_critical_end();
void GOMP_critical_name_start(void**);
void GOMP_critical_name_end(void**);
void GOMP_atomic_start();
void GOMP_atomic_end();
void GOMP_ordered_start();
void GOMP_ordered_end();
void GOMP_taskwait();
void GOMP_taskgroup_end();
void GOMP_task(void (*)(void*), void*, void (*)(void*, void*), long, long, bool, unsigned, void**, int, void*);
void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);
void GOMP_parallel_sections(void (*)(void*), void*, unsigned, unsigned, unsigned);

void races_GOMP_parallel(void (*fn)(void*), void* data, unsigned count, unsigned flags) {
    with_team(fn, data, [&](auto run, void* team) { GOMP_parallel(run, team, count, flags); });
}
void races_GOMP_parallel_sections(void (*fn)(void*), void* data, unsigned count, unsigned sections, unsigned flags) {
    with_team(fn, data, [&](auto run, void* team) { GOMP_parallel_sections(run, team, count, sections, flags); });
}
#define CHUNKED(NAME)                                                                                                    \
    void GOMP_parallel_loop_##NAME(void (*)(void*), void*, unsigned, long, long, long, long, unsigned);                  \
    void races_GOMP_parallel_loop_##NAME(void (*fn)(void*), void* data, unsigned count, long begin, long end, long step, \
                                         long chunk, unsigned flags) {                                                   \
        with_team(fn, data, [&](auto run, void* team) {                                                                  \
            GOMP_parallel_loop_##NAME(run, team, count, begin, end, step, chunk, flags);                                 \
        });                                                                                                              \
    }
CHUNKED(static) CHUNKED(dynamic) CHUNKED(guided) CHUNKED(nonmonotonic_dynamic) CHUNKED(nonmonotonic_guided)
#define UNCHUNKED(NAME)                                                                                                  \
    void GOMP_parallel_loop_##NAME(void (*)(void*), void*, unsigned, long, long, long, unsigned);                        \
    void races_GOMP_parallel_loop_##NAME(void (*fn)(void*), void* data, unsigned count, long begin, long end, long step, \
                                         unsigned flags) {                                                               \
        with_team(fn, data, [&](auto run, void* team) {                                                                  \
            GOMP_parallel_loop_##NAME(run, team, count, begin, end, step, flags);                                        \
        });                                                                                                              \
    }
UNCHUNKED(runtime) UNCHUNKED(nonmonotonic_runtime) UNCHUNKED(maybe_nonmonotonic_runtime)

#define BARRIER(TYPE, NAME) \
    TYPE races_GOMP_##NAME() { return meeting(&Team::barriers, &Thread::barriers, [] { return GOMP_##NAME(); }); }
BARRIER(void, barrier) BARRIER(bool, barrier_cancel) BARRIER(void, loop_end) BARRIER(bool, loop_end_cancel)
BARRIER(void, sections_end) BARRIER(bool, sections_end_cancel)

void* races_GOMP_single_copy_start() {
    Thread& me = self();
    void* const found = GOMP_single_copy_start();  // who is to do it comes back at once, the others when it is done
    if (found && me.team) {
        release(me.team->singles[me.singles % 2]);
        acquire(me.team->singles[me.singles++ % 2]);
    }
    return found;
}
void races_GOMP_single_copy_end(void* data) {
    Thread& me = self();
    if (me.team) release(me.team->singles[me.singles++ % 2]);
    GOMP_single_copy_end(data);
}

#define SECTION(NAME, SYNC)           \
    void races_GOMP_##NAME##_start() { \
        GOMP_##NAME##_start();        \
        acquire(SYNC);                \
    }                                 \
    void races_GOMP_##NAME##_end() {  \
        release(SYNC);                \
        GOMP_##NAME##_end();          \
    }
SECTION(critical, unnamed) SECTION(atomic, atomics)
void races_GOMP_ordered_start() {
    GOMP_ordered_start();
    if (self().team) acquire(self().team->ordered);
}
void races_GOMP_ordered_end() {
    if (self().team) release(self().team->ordered);
    GOMP_ordered_end();
}
void races_GOMP_critical_name_start(void** name) {
    GOMP_critical_name_start(name);
    lock_taken(name);
}
void races_GOMP_critical_name_end(void** name) {
    lock_left(name);
    GOMP_critical_name_end(name);
}
#define LOCKS(KIND, TYPE)                     \
    void races_omp_set_##KIND(TYPE* lock) {   \
        omp_set_##KIND(lock);                 \
        lock_taken(lock);                     \
    }                                         \
    void races_omp_unset_##KIND(TYPE* lock) { \
        lock_left(lock);                      \
        omp_unset_##KIND(lock);               \
    }                                         \
    int races_omp_test_##KIND(TYPE* lock) {   \
        const int got = omp_test_##KIND(lock); \
        if (got) lock_taken(lock);            \
        return got;                           \
    }
LOCKS(lock, omp_lock_t) LOCKS(nest_lock, omp_nest_lock_t)

void races_GOMP_task(void (*fn)(void*), void* data, void (*copy)(void*, void*), long size, long align, bool condition,
                     unsigned flags, void** depend, int priority, void* detach) {
    const auto step = static_cast<std::size_t>(align > 1 ? align : 1), bytes = static_cast<std::size_t>(size);
    void* const block = std::malloc(bytes + step);
    const auto begin = (reinterpret_cast<std::uintptr_t>(block) + step - 1) / step * step;
    void* const own = reinterpret_cast<void*>(begin);
    if (copy) copy(own, data);
    else std::memcpy(own, data, bytes);
    Task task{fn, self().team, own, block};
    if (task.team) release(task.team->tasks);
    GOMP_task(&task_runs, &task, nullptr, sizeof task, alignof(Task), condition, flags, depend, priority, detach);
}
void races_GOMP_taskwait() {
    GOMP_taskwait();
    if (self().team) acquire(self().team->tasks);
}
void races_GOMP_taskgroup_end() {
    GOMP_taskgroup_end();
    if (self().team) acquire(self().team->tasks);
}

// --- the end ----------------------------------------------------------------------------------------------------------

// [magic, state, races, (what the first access is, the second one, places of both behind `anchor`) * races]
void races_tell(std::int64_t* out, const void* anchor) {
    out[0] = MAGIC;
    out[1] = state;
    out[2] = told_count;
    const auto from = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(anchor));
    for (int i = 0; i < told_count; ++i) {
        std::int64_t* const row = out + 3 + 4 * i;
        row[0] = told[i].first_writes;
        row[1] = told[i].second_writes;
        row[2] = static_cast<std::int32_t>(told[i].first - from);
        row[3] = static_cast<std::int32_t>(told[i].second - from);
    }
}

}  // extern "C"
