/* Policies for a serving system: which model to run on which requests, or to wait, or to drop.
 *
 * Written by `ramsis export c` (@version@); do not edit. C99, and C++ from C++11 on. It needs no
 * library, allocates nothing and keeps no state: what changes lies in structures of the caller.
 * Functions are safe for any number, and any thread may call them that has structures of its own.
 * Times and slack are in milliseconds, loads in queries per second.
 *
 *     ramsis_choice choice = ramsis_choose(NULL, load_qps, slowness);
 *     const ramsis_policy *policy = choice.level->stations[0].policy;
 *     ramsis_answer answer = ramsis_lookup(policy, queued, slack_ms, idle);
 *
 * Where policy->cascade is not NULL, ramsis_opinion_lookup gives second opinions besides.
 */
#ifndef RAMSIS_POLICIES_H
#define RAMSIS_POLICIES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- What is asked and answered ---------------------------------------------------------- */

typedef enum {
    RAMSIS_ERROR,
    RAMSIS_RUN,
    RAMSIS_DROP,
    RAMSIS_WAIT,
    RAMSIS_SECOND, /* this and the next with second opinions only */
    RAMSIS_KEEP
} ramsis_kind;

/* What to do next.
 *
 * RAMSIS_RUN:   take the `batch` requests with the earliest deadlines, and run them on `model`, an
 *               index into ramsis_model_names, padded to a batch of `run_as`. Then ask again.
 * RAMSIS_DROP:  take the head out of the queue; it is not answered in time. Then ask again.
 * RAMSIS_WAIT:  ask again when a request arrives, a worker becomes idle, or the slack has fallen
 *               below `wait_below_ms`, which is -HUGE_VAL where no slack is low enough. A timer
 *               that rings early must ask with a slack of at most
 *               nextafter(wait_below_ms, -HUGE_VAL).
 * RAMSIS_ERROR: the question has no answer: nothing is queued, a count is negative, the slack is
 *               not a number, or the idle workers of several are left out.
 */
typedef struct {
    ramsis_kind kind;
    int model;
    int64_t batch;
    int64_t run_as;
    double wait_below_ms;
} ramsis_answer;

/* What to do next where a policy has second opinions.
 *
 * RAMSIS_RUN, RAMSIS_DROP: as above, with fresh requests.
 * RAMSIS_SECOND: take the `batch` unsure requests with the earliest deadlines, and run them on
 *                `model`, padded to a batch of `run_as`. Then ask again.
 * RAMSIS_KEEP:   take the head out of the unsure queue, and send its first answer. Then ask again
 *                with this `level`.
 * RAMSIS_WAIT:   ask again when a request arrives or becomes unsure, a worker becomes idle, or the
 *                slack of the head of the fresh queue has fallen to `wait_fresh_ms`, or that of the
 *                unsure queue to `wait_unsure_ms`; -HUGE_VAL where no slack is low enough. A timer
 *                that rings early must ask with a slack of at most this.
 * RAMSIS_ERROR:  the question has no answer: the policy has no second opinions, a count is
 *                negative, or the slack of a head is not a number.
 */
typedef struct {
    ramsis_kind kind;
    int model;
    int64_t batch;
    int64_t run_as;
    int64_t level;
    double wait_fresh_ms;
    double wait_unsure_ms;
} ramsis_opinion;

typedef enum { RAMSIS_ROUND_ROBIN, RAMSIS_SHORTEST_QUEUE, RAMSIS_CENTRAL_QUEUE } ramsis_dispatch;

/* For `idle`, where a queue has a single worker: it is the one that is idle. */
#define RAMSIS_ONLY_WORKER INT64_MIN

/* For `level`: that of what waits. */
#define RAMSIS_PRESENT_LEVEL INT64_C(-1)

typedef uint@index_bits@_t ramsis_index;

/* Second opinions of a policy, for ramsis_opinion_lookup and ramsis_unsure only. */
typedef struct {
    double levels_per_fresh;
    double levels_per_unsure;
    size_t queued;
    size_t models;
    const double *edges_ms;
    size_t edges;
    const uint32_t *row_of;
    const ramsis_index *rows;
    const int64_t *gather;
    size_t levels;
    const int64_t *least;
    const double *late_below_ms; /* this and the next by batch */
    const double *call_below_ms;
    const double *wait_ms;
    const ramsis_index *seconds;
    size_t most;
    const ramsis_index *limit_of;
    const double *limits;
} ramsis_cascade;

/* One policy. `dispatch`, `slo_ms`, `load_qps` and `workers` are what it was made for; `cascade` is
 * NULL where it has no second opinions. */
typedef struct {
    ramsis_dispatch dispatch;
    double slo_ms;
    double load_qps;
    int64_t workers;
    /* The table, for ramsis_lookup only. */
    const int64_t *idle;
    size_t idle_levels;
    const int64_t *queued;
    size_t queue_levels;
    const double *edges_ms;
    size_t edges;
    const uint32_t *row_of;
    const ramsis_index *rows;
    size_t longer;
    const ramsis_cascade *cascade;
} ramsis_policy;

/* Like workers that serve by one policy, from so many queues. */
typedef struct {
    const char *name;
    const char *const *worker_types;
    size_t worker_type_count;
    int64_t workers;
    int64_t queues;
    double load_qps;
    const ramsis_policy *policy;
} ramsis_station;

/* A station that serves a class, and the shares of the class up to and with this station. */
typedef struct {
    size_t station;
    double upto;
} ramsis_share;

/* Queries with one SLO. */
typedef struct {
    double slo_ms;
    const ramsis_share *shares;
    size_t share_count;
} ramsis_class;

/* What serves up to one load, by policies for service times `slowness` times as long as profiled. */
typedef struct {
    double load_qps;
    double slowness;
    const ramsis_station *stations;
    size_t station_count;
    const ramsis_class *classes;
    size_t class_count;
} ramsis_level;

/* The levels for one arrival process, by rising slowness and load. */
typedef struct {
    const char *label;
    const ramsis_level *levels;
    size_t level_count;
} ramsis_process;

/* ---- The policies ------------------------------------------------------------------------ */

@tables@
/* ---- Lookup ------------------------------------------------------------------------------ */

/* Whether a number is NaN; by its bits, so that -ffast-math changes nothing. */
static inline int ramsis_is_nan(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits << 1) > UINT64_C(0xFFE0000000000000);
}

/* Whether a number is above 0 and finite; by its bits, too. */
static inline int ramsis_is_positive(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits > 0 && bits < UINT64_C(0x7FF0000000000000);
}

/* Whether a number is the positive infinity. */
static inline int ramsis_is_infinite(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits == UINT64_C(0x7FF0000000000000);
}

/* How many of `count` rising numbers a value reaches: always from 0 to `count`. No branch depends
 * on the value, so that a lookup takes as long for any. */
#define RAMSIS_REACHED(name, type)                                                              \
    static inline size_t name(const type *numbers, size_t count, type value)                    \
    {                                                                                           \
        size_t first = 0, half;                                                                 \
        for (; count > 1; count -= half) {                                                      \
            half = count / 2;                                                                   \
            first += numbers[first + half - 1] <= value ? half : 0;                             \
        }                                                                                       \
        return first + (count == 1 && numbers[first] <= value);                                 \
    }
RAMSIS_REACHED(ramsis_reached_ms, double)
RAMSIS_REACHED(ramsis_reached_count, int64_t)
RAMSIS_REACHED(ramsis_reached_bin, ramsis_index)

/* What to do with `queued` requests, the earliest deadline `slack_ms` away, and `idle` workers of
 * the queue.
 *
 * policy    not NULL
 * queued    from 1
 * slack_ms  any number but NaN, infinities and negative (late) ones included
 * idle      from 0; more than there are count as all; RAMSIS_ONLY_WORKER where there is one
 */
static inline ramsis_answer ramsis_lookup(const ramsis_policy *policy, int64_t queued,
                                          double slack_ms, int64_t idle)
{
    const int64_t longest = policy->queued[policy->queue_levels - 1];
    const ramsis_index *row; /* how many answers, the bins from which they hold, the answers */
    size_t i, n, j;

    if (idle == RAMSIS_ONLY_WORKER && policy->idle[policy->idle_levels - 1] == 1)
        idle = 1;
    if (queued < 1 || idle < 0 || ramsis_is_nan(slack_ms))
        return ramsis_answers[RAMSIS_NONE];
    if (queued > longest && policy->longer == RAMSIS_DROPPED)
        return ramsis_answers[RAMSIS_DROPPED];
    if (idle == 0)
        return ramsis_answers[RAMSIS_NEVER];
    if (queued > longest && policy->longer != RAMSIS_NONE)
        return ramsis_answers[policy->longer];
    i = ramsis_reached_count(policy->idle, policy->idle_levels, idle) - 1;
    n = ramsis_reached_count(policy->queued, policy->queue_levels, queued) - 1;
    j = ramsis_reached_ms(policy->edges_ms, policy->edges, slack_ms);
    row = policy->rows + policy->row_of[i * policy->queue_levels + n];
    return ramsis_answers[row[row[0] + ramsis_reached_bin(row + 1, row[0] - (size_t)1,
                                                          (ramsis_index)j)]];
}

/* The same when batches take `slowness` times as long as the policy counts on, as a choice of level
 * says, 1 or more. `slack_ms` is the slack divided by `slowness`, and so is `wait_below_ms` of the
 * answer. In a central queue each request counts as so many, unless the batch is then larger than
 * the queue. */
static inline ramsis_answer ramsis_lookup_slow(const ramsis_policy *policy, double slowness,
                                               int64_t queued, double slack_ms, int64_t idle)
{
    const double many = (double)queued * slowness;
    ramsis_answer answer;

    if (policy->dispatch == RAMSIS_CENTRAL_QUEUE && queued > 0 && many < 9e18) {
        answer = ramsis_lookup(policy, (int64_t)many, slack_ms, idle);
        if (answer.batch <= queued)
            return answer;
    }
    return ramsis_lookup(policy, queued, slack_ms, idle);
}

/* ---- Second opinions --------------------------------------------------------------------- */

/* The level of so many fresh and unsure requests that wait; -1 where a count is negative or the
 * policy has no second opinions. It says who is unsure when a first batch ends. */
static inline int64_t ramsis_opinion_level(const ramsis_policy *policy, int64_t fresh,
                                           int64_t unsure)
{
    const ramsis_cascade *cascade = policy->cascade;
    /* Each is rounded to a double, whatever the machine, and no two are fused. */
    volatile double of_fresh, of_unsure, level;

    if (cascade == NULL || fresh < 0 || unsure < 0)
        return -1;
    of_fresh = (double)fresh * cascade->levels_per_fresh;
    of_unsure = (double)unsure * cascade->levels_per_unsure;
    level = of_fresh + of_unsure;
    return level < (double)cascade->levels ? (int64_t)level : (int64_t)cascade->levels - 1;
}

/* Whether the first answer of a model is unsure: 1, or 0 where it is sent.
 *
 * level       of what waited when the batch ended: ramsis_opinion_level; in a queue where batches
 *             take longer, each fresh request counts as so many there, too
 * model       of the first answer, an index into ramsis_model_names
 * confidence  any number; a NaN is not unsure
 */
static inline int ramsis_unsure(const ramsis_policy *policy, int64_t level, int model,
                                double confidence)
{
    const ramsis_cascade *cascade = policy->cascade;
    size_t limit;

    if (cascade == NULL || level < 0 || level >= (int64_t)cascade->levels || model < 0
        || (size_t)model >= cascade->models || ramsis_is_nan(confidence))
        return 0;
    limit = cascade->limit_of[(size_t)level * cascade->models + (size_t)model];
    if (limit == RAMSIS_ANY_SURENESS)
        return !ramsis_is_infinite(confidence);
    return limit != RAMSIS_SURE && confidence < cascade->limits[limit - 2];
}

/* What to do where a worker is idle, with `fresh` requests that no model has answered yet, and
 * `unsure` ones that wait for a second opinion; their earliest deadlines are `slack_ms` and
 * `unsure_slack_ms` away.
 *
 * policy            has a cascade
 * fresh, unsure     from 0
 * slack_ms,
 * unsure_slack_ms   any number but NaN, which counts only where its queue is empty
 * level             that of the RAMSIS_KEEP after which this is asked again, else
 *                   RAMSIS_PRESENT_LEVEL
 */
static inline ramsis_opinion ramsis_opinion_lookup(const ramsis_policy *policy, int64_t fresh,
                                                   double slack_ms, int64_t unsure,
                                                   double unsure_slack_ms, int64_t level)
{
    const ramsis_cascade *cascade = policy->cascade;
    ramsis_opinion opinion = {RAMSIS_ERROR, 0, 0, 0, 0, -HUGE_VAL, -HUGE_VAL};
    const ramsis_index *row;
    ramsis_answer answer;
    size_t most, n, j, runs = 0;
    int64_t worth;

    if (cascade == NULL || fresh < 0 || unsure < 0 || level < -1
        || (level >= 0 && level >= (int64_t)cascade->levels)
        || (fresh > 0 && ramsis_is_nan(slack_ms)) || (unsure > 0 && ramsis_is_nan(unsure_slack_ms)))
        return opinion;
    if (level < 0)
        level = ramsis_opinion_level(policy, fresh, unsure);
    opinion.level = level;
    answer = ramsis_answers[RAMSIS_NONE];
    if (unsure > 0) {
        worth = cascade->gather[level];
        if (unsure_slack_ms < cascade->late_below_ms[(unsure < worth ? unsure : worth) - 1]) {
            opinion.kind = RAMSIS_KEEP;
            return opinion;
        }
        most = (uint64_t)unsure < cascade->most ? (size_t)unsure : cascade->most;
        runs = ramsis_reached_ms(cascade->late_below_ms, most, unsure_slack_ms);
        if ((int64_t)runs >= worth || unsure_slack_ms < cascade->call_below_ms[runs - 1])
            answer = ramsis_answers[cascade->seconds[runs - 1]];
    }
    if (answer.kind == RAMSIS_ERROR && fresh > 0) {
        n = (uint64_t)fresh < cascade->queued ? (size_t)fresh : cascade->queued;
        row = cascade->rows + cascade->row_of[(size_t)level * cascade->queued + n - 1];
        j = ramsis_reached_ms(cascade->edges_ms, cascade->edges, slack_ms);
        answer = ramsis_answers[row[row[0] + ramsis_reached_bin(row + 1, row[0] - (size_t)1,
                                                                (ramsis_index)j)]];
        if (answer.kind == RAMSIS_WAIT)
            opinion.wait_fresh_ms = answer.wait_below_ms;
    }
    if ((answer.kind == RAMSIS_ERROR || answer.kind == RAMSIS_WAIT) && runs > 0
        && (int64_t)runs >= cascade->least[level])
        answer = ramsis_answers[cascade->seconds[runs - 1]];
    opinion.kind = answer.kind == RAMSIS_ERROR ? RAMSIS_WAIT : answer.kind;
    opinion.model = answer.model;
    opinion.batch = answer.batch;
    opinion.run_as = answer.run_as;
    if (opinion.kind != RAMSIS_WAIT)
        opinion.wait_fresh_ms = -HUGE_VAL;
    else if (runs > 0)
        opinion.wait_unsure_ms = cascade->wait_ms[runs - 1];
    return opinion;
}

/* The same when batches take `slowness` times as long as the policy counts on, 1 or more. Both
 * slacks are divided by it, and so are those of a wait. Each fresh request counts as so many,
 * unless the batch is then larger than the queue. */
static inline ramsis_opinion ramsis_opinion_lookup_slow(const ramsis_policy *policy,
                                                        double slowness, int64_t fresh,
                                                        double slack_ms, int64_t unsure,
                                                        double unsure_slack_ms, int64_t level)
{
    const double many = (double)fresh * slowness;
    ramsis_opinion opinion;

    if (fresh > 0 && many < 9e18) {
        opinion = ramsis_opinion_lookup(policy, (int64_t)many, slack_ms, unsure, unsure_slack_ms,
                                        level);
        if (opinion.kind != RAMSIS_RUN || opinion.batch <= fresh)
            return opinion;
    }
    return ramsis_opinion_lookup(policy, fresh, slack_ms, unsure, unsure_slack_ms, level);
}

/* The name of a model, from 0 to RAMSIS_MODELS - 1; NULL for any other number. */
static inline const char *ramsis_model_name(int model)
{
    return model < 0 || model >= RAMSIS_MODELS ? NULL : ramsis_model_names[model];
}

/* ---- Levels and stations ----------------------------------------------------------------- */

/* The level for a load and slowness. `level` is NULL where the question has no answer;
 * `above_highest` says that the load passes every level, so that what the policies promise does
 * not hold. Batches take `slowness` times as long as the policies count on, 1 or more, which
 * ramsis_lookup_slow is told. */
typedef struct {
    const ramsis_level *level;
    int above_highest;
    double slowness;
    size_t process;
} ramsis_choice;

/* Remembers whether the load was above every level. All zero at first. */
typedef struct {
    unsigned char above[RAMSIS_PROCESSES];
} ramsis_watch;

/* The lowest level that meets a load of an arrival process when service is so slow.
 *
 * process   label of the process; NULL where the set has one only
 * load_qps  from 0
 * slowness  batches take so many times as long as profiled, above 0; 1 where that is not measured
 */
static inline ramsis_choice ramsis_choose(const char *process, double load_qps, double slowness)
{
    ramsis_choice choice = {NULL, 0, 1.0, 0};
    const ramsis_process *chosen;
    size_t level = 0;
    double of_level;

    if (process == NULL && RAMSIS_PROCESSES > 1)
        return choice;
    if (process != NULL) {
        while (choice.process < RAMSIS_PROCESSES
               && strcmp(ramsis_processes[choice.process].label, process) != 0)
            choice.process++;
        if (choice.process == RAMSIS_PROCESSES)
            return choice;
    }
    if (ramsis_is_nan(load_qps) || load_qps < 0 || !ramsis_is_positive(slowness))
        return choice;
    chosen = &ramsis_processes[choice.process];
    /* The levels of the lowest slowness that is not below the present one, else of the highest. */
    of_level = chosen->levels[chosen->level_count - 1].slowness;
    if (slowness > of_level) {
        choice.slowness = slowness / of_level;
        slowness = of_level;
    }
    while (chosen->levels[level].slowness < slowness)
        level++;
    of_level = chosen->levels[level].slowness;
    while (level < chosen->level_count && chosen->levels[level].slowness == of_level
           && chosen->levels[level].load_qps < load_qps)
        level++;
    choice.above_highest = level == chosen->level_count
                           || chosen->levels[level].slowness != of_level;
    choice.level = &chosen->levels[level - (size_t)choice.above_highest];
    return choice;
}

/* Whether the load has just passed every level: 1 for the first such choice after one within the
 * levels, or the first of all. */
static inline int ramsis_passed(ramsis_watch *watch, ramsis_choice choice)
{
    int before;

    if (choice.level == NULL || choice.process >= RAMSIS_PROCESSES)
        return 0;
    before = watch->above[choice.process];
    watch->above[choice.process] = (unsigned char)choice.above_highest;
    return choice.above_highest && !before;
}

/* The station of a level that a query goes to; NULL where there is no class of this SLO.
 *
 * uniform   a random number in [0, 1) of the query's own
 */
static inline const ramsis_station *ramsis_route(const ramsis_level *level, double slo_ms,
                                                 double uniform)
{
    const ramsis_class *asked = level->classes;
    const ramsis_class *end = asked + level->class_count;
    double reached;
    size_t share = 0;

    while (asked < end && asked->slo_ms != slo_ms)
        asked++;
    if (asked == end)
        return NULL;
    reached = uniform * asked->shares[asked->share_count - 1].upto;
    while (share + 1 < asked->share_count && asked->shares[share].upto < reached)
        share++;
    return &level->stations[asked->shares[share].station];
}

/* ---- Queues ------------------------------------------------------------------------------ */

/* Says which queue of a station a request joins. */
typedef struct {
    ramsis_dispatch dispatch;
    size_t queues;
    uint64_t joins;
    uint64_t *joined;
} ramsis_router;

/* Start with the first queue.
 *
 * joined    one number for each queue, to be used by the router
 */
static inline void ramsis_router_init(ramsis_router *router, ramsis_dispatch dispatch,
                                      size_t queues, uint64_t *joined)
{
    size_t k;

    router->dispatch = dispatch;
    router->queues = queues;
    router->joins = 0;
    router->joined = joined;
    for (k = 0; k < queues; k++)
        joined[k] = 0;
}

/* The queue, from 0, that the next request joins.
 *
 * in_system  for each queue the requests that wait or are in service
 */
static inline size_t ramsis_join(ramsis_router *router, const int64_t *in_system)
{
    size_t k, chosen = 0;
    int64_t fewest, most;

    if (router->dispatch == RAMSIS_CENTRAL_QUEUE || router->queues < 2)
        return 0;
    if (router->dispatch == RAMSIS_ROUND_ROBIN) {
        chosen = (size_t)(router->joins % router->queues);
    } else {
        for (k = 1; k < router->queues; k++)
            if (in_system[k] < in_system[chosen])
                chosen = k;
        fewest = in_system[chosen] < 0 ? 0 : in_system[chosen];
        most = fewest > INT64_MAX / @as_short@ ? INT64_MAX : @as_short@ * fewest;
        for (k = 0; k < router->queues; k++)
            if (in_system[k] <= most && (router->joined[k] < router->joined[chosen]
                                         || (router->joined[k] == router->joined[chosen]
                                             && k < chosen)))
                chosen = k;
    }
    router->joined[chosen] = ++router->joins;
    return chosen;
}

/* ---- Load monitor ------------------------------------------------------------------------ */

/* Arrivals that are counted together. */
typedef struct {
    double first_ms;
    double last_ms;
    uint64_t count;
} ramsis_arrivals;

/* The load as a moving average. */
typedef struct {
    double window_ms;
    double start_ms;
    double latest_ms;
    uint64_t count;
    ramsis_arrivals *cells;
    size_t capacity;
    size_t oldest;
    size_t used;
    int started;
} ramsis_monitor;

/* Start a monitor; 0, or -1 where the window is not a finite number above 0 or there are fewer
 * than 8 cells.
 *
 * window_ms  length of the window; @window_ms@ in Python
 * cells      room for what lies in the window, to be used by the monitor
 *
 * The load is exact as long as each call of ramsis_record in a window has a cell of its own. With
 * more calls, arrivals less than 4/capacity of the window apart share a cell and leave the window
 * with the last of them, so that the load is never too low. */
static inline int ramsis_monitor_init(ramsis_monitor *monitor, double window_ms,
                                      ramsis_arrivals *cells, size_t capacity)
{
    if (ramsis_is_nan(window_ms) || !(window_ms > 0 && window_ms < HUGE_VAL) || capacity < 8)
        return -1;
    memset(monitor, 0, sizeof *monitor);
    monitor->window_ms = window_ms;
    monitor->cells = cells;
    monitor->capacity = capacity;
    return 0;
}

/* The cell that is so many after the oldest. */
static inline ramsis_arrivals *ramsis_cell(ramsis_monitor *monitor, size_t after)
{
    const size_t to_end = monitor->capacity - monitor->oldest;
    return &monitor->cells[after < to_end ? monitor->oldest + after : after - to_end];
}

/* Forget what has left the window; -1 where the time goes back or is not finite. */
static inline int ramsis_advance(ramsis_monitor *monitor, double now_ms)
{
    double gone_ms;

    if (ramsis_is_nan(now_ms) || !(now_ms > -HUGE_VAL && now_ms < HUGE_VAL)
        || (monitor->started && now_ms < monitor->latest_ms))
        return -1;
    if (!monitor->started)
        monitor->start_ms = now_ms;
    monitor->started = 1;
    monitor->latest_ms = now_ms;
    gone_ms = now_ms - monitor->window_ms;
    while (monitor->used > 0 && monitor->cells[monitor->oldest].last_ms <= gone_ms) {
        monitor->count -= monitor->cells[monitor->oldest].count;
        monitor->oldest = monitor->oldest + 1 < monitor->capacity ? monitor->oldest + 1 : 0;
        monitor->used--;
    }
    return 0;
}

/* Free about half of the cells: those that are close together share one. */
static inline void ramsis_make_room(ramsis_monitor *monitor)
{
    const double close_ms = 4.0 * (monitor->window_ms / (double)monitor->capacity);
    size_t k, kept = 0;

    for (k = 1; k < monitor->used; k++) {
        ramsis_arrivals *last = ramsis_cell(monitor, kept);
        const ramsis_arrivals next = *ramsis_cell(monitor, k);
        if (next.last_ms - last->first_ms < close_ms) {
            last->last_ms = next.last_ms;
            last->count += next.count;
        } else {
            *ramsis_cell(monitor, ++kept) = next;
        }
    }
    monitor->used = kept + 1;
}

/* Note `count` arrivals at a time that is not before that of any earlier call; 0, or -1 where the
 * time goes back or is not finite, the count is below 1, or all counts together pass 2^64 - 1. The
 * monitor is then as before. */
static inline int ramsis_record(ramsis_monitor *monitor, double now_ms, int64_t count)
{
    ramsis_arrivals *cell;

    if (count < 1 || (uint64_t)count > UINT64_MAX - monitor->count
        || ramsis_advance(monitor, now_ms) != 0)
        return -1;
    if (monitor->used == monitor->capacity)
        ramsis_make_room(monitor);
    if (monitor->used == monitor->capacity) {
        cell = ramsis_cell(monitor, monitor->used - 1);
    } else {
        cell = ramsis_cell(monitor, monitor->used++);
        cell->first_ms = now_ms;
        cell->count = 0;
    }
    cell->last_ms = now_ms;
    cell->count += (uint64_t)count;
    monitor->count += (uint64_t)count;
    return 0;
}

/* The load at a time that is not before that of any earlier call; 0, or -1 where the time goes
 * back or is not finite, and then `load_qps` and the monitor are as before. */
static inline int ramsis_load(ramsis_monitor *monitor, double now_ms, double *load_qps)
{
    double span_ms, shortest_ms;

    if (ramsis_advance(monitor, now_ms) != 0)
        return -1;
    span_ms = now_ms - monitor->start_ms;
    shortest_ms = @shortest_span@ * monitor->window_ms;
    if (span_ms < shortest_ms)
        span_ms = shortest_ms;
    if (span_ms > monitor->window_ms)
        span_ms = monitor->window_ms;
    *load_qps = 1000.0 * (double)monitor->count / span_ms;
    return 0;
}

#undef RAMSIS_REACHED

#endif
