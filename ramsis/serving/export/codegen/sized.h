/* Policies for requests with a size: which of those that wait are the next batch.
 *
 * Written by `ramsis export c` (@version@); do not edit. C99, and C++ from C++11 on. It needs no
 * library, allocates nothing and keeps no state. Any thread may call it that has arrays of its
 * own. Times are in milliseconds, loads in requests per second.
 *
 *     const ramsis_sized *policy = ramsis_sized_for(load_qps);
 *     ramsis_batch batch = ramsis_next_batch(policy, deadline_ms, size, fate, waiting, now_ms,
 *                                            HUGE_VAL, 1);
 *
 * Decisions are those of other implementations to the last request where doubles are rounded once
 * and each product for itself: on x86-64 by default, elsewhere with -ffp-contract=off.
 */
#ifndef RAMSIS_SIZED_POLICIES_H
#define RAMSIS_SIZED_POLICIES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* ---- What is asked and answered ---------------------------------------------------------- */

#define RAMSIS_NO_BATCH (-1)    /* nothing waits that can still be in time */
#define RAMSIS_NO_QUESTION (-2) /* a size beyond the policy, deadlines that fall, no number */

enum { RAMSIS_WAITS, RAMSIS_MEMBER, RAMSIS_HOPELESS };

/* Run the `members` requests whose fate is RAMSIS_MEMBER on `model`, an index into the names of
 * the policy; drop the `dropped` ones whose fate is RAMSIS_HOPELESS. By the tables the batch takes
 * `time_ms`. */
typedef struct {
    int model;
    int64_t members;
    int64_t dropped;
    double time_ms;
} ramsis_batch;

/* The policy for one load: numbers of models, size classes, levels of backlog, sizes that times are
 * known at, bins of slack, and counts of a batch; then tables. A cell is class * bins + bin. */
typedef struct {
    double load_qps;
    double slo_ms;
    int64_t workers;
    const char *const *names; /* of the models */
    int padded; /* a batch takes the time of its longest size, else that of the total one */
    int models;
    int classes;
    int levels;
    int places;
    int bins;
    int counts;
    const int64_t *edges;      /* largest size of each class */
    const double *mean_size;   /* by class */
    const int64_t *work_us;    /* by class */
    int64_t level_us;
    int64_t bin_us;
    const double *middle_ms;   /* by bin */
    const double *alone_ms;    /* of the largest request of a class, by class */
    const uint8_t *rank;       /* in the order of serving, by model, level and cell */
    const int64_t *gain;       /* by model, level and cell */
    const int64_t *aging;      /* by level and cell */
    const double *price;       /* by level */
    const int64_t *sizes;      /* that times are known at */
    const double *times_ms;    /* by model, place of a size, and count less 1 */
    const double *slopes;      /* by model, place and count, where padded */
} ramsis_sized;

/* ---- Tables ------------------------------------------------------------------------------ */

@tables@
/* ---- Functions --------------------------------------------------------------------------- */

#if defined(__GNUC__)
#define RAMSIS_UNUSED_ __attribute__((unused))
#else
#define RAMSIS_UNUSED_
#endif
#define RAMSIS_SIZED_CELLS_ 256
#define RAMSIS_TOLERANCE_MS_ @tolerance_ms@
#define RAMSIS_UNIT_ 1e-6
#define RAMSIS_SETS_ (RAMSIS_SIZED_CELLS_ / 64)

/* The policy for a load: that of the least load which is not below it, else of the highest. */
RAMSIS_UNUSED_ static const ramsis_sized *ramsis_sized_for(double load_qps)
{
    size_t k;
    for (k = 0; k + 1 < RAMSIS_SIZED_POLICIES; k++)
        if (ramsis_sized_policies[k].load_qps >= load_qps * (1 - 1e-6))
            break;
    return &ramsis_sized_policies[k];
}

/* The first of rising values that is not below one. */
static int ramsis_place_(const int64_t *values, int count, int64_t value)
{
    int place = 0;
    while (count > 1) { /* written so that no jump depends on the values */
        const int half = count / 2;
        place += values[place + half - 1] < value ? half : 0;
        count -= half;
    }
    return place + (values[place] < value);
}

/* The time of a batch by its longest or total size, and the first of the known sizes that is not
 * below it; infinite beyond the table. */
static double ramsis_time_ms_(const ramsis_sized *p, int model, int64_t count, double size,
                              int place)
{
    const double *times;
    double part, before;
    if (place == p->places)
        return HUGE_VAL;
    times = p->times_ms + (count - 1)
            + ((size_t)model * (size_t)p->places + (size_t)place) * (size_t)p->counts;
    if (p->padded || place == 0)
        return times[0];
    part = (size - (double)p->sizes[place - 1]) / (double)(p->sizes[place] - p->sizes[place - 1]);
    before = *(times - p->counts);
    return before + (times[0] - before) * part;
}

/* The same by a size alone. */
static double ramsis_batch_ms_(const ramsis_sized *p, int model, int64_t count, int64_t size)
{
    return ramsis_time_ms_(p, model, count, (double)size, ramsis_place_(p->sizes, p->places, size));
}

/* The time of a request alone on the model that is fastest for it. */
static double ramsis_alone_ms_(const ramsis_sized *p, int64_t size)
{
    double least_ms = ramsis_batch_ms_(p, 0, 1, size);
    int m;
    for (m = 1; m < p->models; m++) {
        const double time_ms = ramsis_batch_ms_(p, m, 1, size);
        if (time_ms < least_ms)
            least_ms = time_ms;
    }
    return least_ms;
}

/* The first bin whose middle is not before a time. */
static int ramsis_bin_at_(const ramsis_sized *p, double time_ms)
{
    int bin = 0;
    while (bin < p->bins && p->middle_ms[bin] < time_ms)
        bin++;
    return bin;
}

/* A set of cells or ranks. */
typedef struct {
    uint64_t words[RAMSIS_SETS_];
} ramsis_set_;

/* The least element of a word that has some. */
static int ramsis_least_(uint64_t word)
{
#if defined(__GNUC__)
    return __builtin_ctzll(word);
#else
    int bit = 0;
    for (; (word & 255) == 0; word >>= 8)
        bit += 8;
    for (; (word & 1) == 0; word >>= 1)
        bit++;
    return bit;
#endif
}

/* The cells that are not empty, by their rank in the order of serving. */
typedef struct {
    ramsis_set_ up_to[RAMSIS_SIZED_CELLS_];     /* ranks of no larger class, by class */
    ramsis_set_ from[RAMSIS_SIZED_CELLS_ + 1];  /* ranks of no smaller bin, by bin */
    uint8_t cell[RAMSIS_SIZED_CELLS_];
    uint8_t bin[RAMSIS_SIZED_CELLS_];
    int64_t count[RAMSIS_SIZED_CELLS_];
    int64_t gain[RAMSIS_SIZED_CELLS_];
    double value[RAMSIS_SIZED_CELLS_]; /* of the gain */
} ramsis_line_;

static void ramsis_line_up_(ramsis_line_ *line, const ramsis_sized *p, size_t table,
                            const ramsis_set_ *cells, const int64_t *counts)
{
    const ramsis_set_ none = {{0}};
    const uint8_t *rank = p->rank + table;
    const int64_t *gain = p->gain + table;
    int k, word;
    for (k = 0; k < p->classes; k++)
        line->up_to[k] = none;
    for (k = 0; k <= p->bins; k++)
        line->from[k] = none;
    for (word = 0; word < RAMSIS_SETS_; word++) {
        uint64_t left = cells->words[word];
        for (; left != 0; left &= left - 1) {
            const int cell = 64 * word + ramsis_least_(left), r = rank[cell];
            const uint64_t bit = UINT64_C(1) << (r % 64);
            line->cell[r] = (uint8_t)cell;
            line->bin[r] = (uint8_t)(cell % p->bins);
            line->count[r] = counts[cell];
            line->gain[r] = gain[cell];
            line->value[r] = (double)gain[cell] * RAMSIS_UNIT_;
            line->up_to[cell / p->bins].words[r / 64] |= bit;
            line->from[cell % p->bins].words[r / 64] |= bit;
        }
    }
    for (word = 0; word < RAMSIS_SETS_; word++) {
        for (k = 1; k < p->classes; k++)
            line->up_to[k].words[word] |= line->up_to[k - 1].words[word];
        for (k = p->bins - 1; k >= 0; k--)
            line->from[k].words[word] |= line->from[k + 1].words[word];
    }
}

/* A batch of the first of the line; the least bin of its members says until when it may end. */
typedef struct {
    int64_t count;
    int64_t gain;
    double time_ms;
    int least;
} ramsis_candidate_;

static ramsis_candidate_ ramsis_padded_(const ramsis_sized *p, const ramsis_line_ *line,
                                        size_t row, int last, int least, int64_t most,
                                        double worth)
{
    const double *slope = p->slopes + row * ((size_t)p->counts + 1);
    ramsis_candidate_ batch = {0, 0, 0, RAMSIS_SIZED_CELLS_};
    int word, enough = 0;
    for (word = 0; word < RAMSIS_SETS_ && !enough; word++) {
        uint64_t left = line->up_to[last].words[word] & line->from[least].words[word];
        for (; left != 0 && !enough; left &= left - 1) {
            const int r = 64 * word + ramsis_least_(left);
            const double value = line->value[r];
            int64_t upto = batch.count + line->count[r];
            /* Gains fall and slopes rise, so where not all of a cell pays it is the last one. */
            enough = upto > most || slope[upto - 1] * worth > value;
            if (enough) {
                upto = batch.count;
                if (upto == 0)
                    upto++; /* the first always */
                while (upto < most && slope[upto] * worth <= value)
                    upto++;
                if (upto == batch.count)
                    break;
            }
            batch.gain += (upto - batch.count) * line->gain[r];
            batch.count = upto;
            if (line->bin[r] < batch.least)
                batch.least = line->bin[r];
        }
    }
    if (batch.count > 0)
        batch.time_ms = p->times_ms[row * (size_t)p->counts + (size_t)(batch.count - 1)];
    return batch;
}

static ramsis_candidate_ ramsis_packed_(const ramsis_sized *p, const ramsis_line_ *line, int model,
                                        int least, int64_t most, double worth)
{
    ramsis_candidate_ batch = {0, 0, 0, RAMSIS_SIZED_CELLS_}, best = batch;
    double best_value = -HUGE_VAL, total = 0;
    int word, place = 0;
    for (word = 0; word < RAMSIS_SETS_; word++) {
        uint64_t left = line->from[least].words[word];
        for (; left != 0; left &= left - 1) {
            const int r = 64 * word + ramsis_least_(left);
            int64_t added = line->count[r];
            double value;
            if (added > most - batch.count)
                added = most - batch.count;
            batch.count += added;
            batch.gain += added * line->gain[r];
            total += (double)added * p->mean_size[line->cell[r] / p->bins];
            if (line->bin[r] < batch.least)
                batch.least = line->bin[r];
            while (place < p->places && (double)p->sizes[place] < total)
                place++;
            batch.time_ms = ramsis_time_ms_(p, model, batch.count, total, place);
            if (batch.time_ms == HUGE_VAL)
                return best;
            value = (double)batch.gain * RAMSIS_UNIT_ - worth * batch.time_ms;
            if (value > best_value) {
                best_value = value;
                best = batch;
            }
            if (batch.count == most)
                return best;
        }
    }
    return best;
}

/* The bin of a slack. */
static int ramsis_bin_(const ramsis_sized *p, int64_t bin_us, double per_us, int64_t slack_us)
{
    int64_t bin = (int64_t)((double)slack_us * per_us); /* the quotient, or one beside it */
    bin -= bin * bin_us > slack_us;
    bin += (bin + 1) * bin_us <= slack_us;
    return bin >= p->bins ? p->bins - 1 : bin > 0 ? (int)bin : 0;
}

/* Whether a time can be counted in microseconds. */
static int ramsis_is_time_(double time_ms)
{
    return time_ms > -1e12 && time_ms < 1e12;
}

/* Decide what an idle worker runs next.
 *
 * deadline_ms, size: of the requests that wait, in the order of their deadlines.
 * fate:     written for each of them: RAMSIS_WAITS, RAMSIS_MEMBER or RAMSIS_HOPELESS.
 * free_ms:  time until another worker is free: 0 where one is idle, HUGE_VAL where there is none.
 * slowness: how many times as long batches take as profiled, 1 or more.
 */
RAMSIS_UNUSED_ static ramsis_batch ramsis_next_batch(
    const ramsis_sized *p, const double *deadline_ms, const int64_t *size, uint16_t *fate,
    size_t waiting, double now_ms, double free_ms, double slowness)
{
    const size_t cells = (size_t)p->classes * (size_t)p->bins;
    int64_t counts[RAMSIS_SIZED_CELLS_] = {0};
    int64_t longest[RAMSIS_SIZED_CELLS_] = {0};
    double per_us, price, aging, best = -HUGE_VAL;
    ramsis_set_ filled = {{0}};
    ramsis_line_ line;
    ramsis_batch batch = {RAMSIS_NO_QUESTION, 0, 0, 0};
    int64_t bin_us, now_us, work_us = 0, lost = 0, need;
    int c, m, level, word, model = RAMSIS_NO_BATCH, last = 0, least = 0;
    size_t k;

    if (!ramsis_is_time_(now_ms) || !(free_ms >= 0) || !(slowness >= 1) || !(slowness <= 1e6))
        return batch;
    for (k = 0; k < waiting; k++)
        if (size[k] < 1 || size[k] > p->edges[p->classes - 1] || !ramsis_is_time_(deadline_ms[k])
            || (k > 0 && deadline_ms[k] < deadline_ms[k - 1]))
            return batch;
    bin_us = (int64_t)((double)p->bin_us * slowness + 0.5);
    per_us = 1 / (double)bin_us;
    now_us = (int64_t)(1000 * now_ms);
    free_ms /= slowness;

    /* Count by cell. Until the end a fate is the cell, or RAMSIS_SIZED_CELLS_ where hopeless. */
    for (k = 0; k < waiting; k++) {
        const double slack_ms = deadline_ms[k] - now_ms + RAMSIS_TOLERANCE_MS_;
        int cell;
        c = ramsis_place_(p->edges, p->classes, size[k]);
        if (slack_ms < p->alone_ms[c] * slowness
            && slack_ms < ramsis_alone_ms_(p, size[k]) * slowness) {
            fate[k] = RAMSIS_SIZED_CELLS_;
            batch.dropped++;
            continue;
        }
        cell = c * p->bins
            + ramsis_bin_(p, bin_us, per_us, (int64_t)(1000 * deadline_ms[k]) - now_us);
        fate[k] = (uint16_t)cell;
        counts[cell]++;
        filled.words[cell / 64] |= UINT64_C(1) << (cell % 64);
        work_us += p->work_us[c];
        if (size[k] > longest[c])
            longest[c] = size[k];
    }

    level = work_us / p->level_us < p->levels - 1 ? (int)(work_us / p->level_us) : p->levels - 1;
    for (word = 0; word < RAMSIS_SETS_; word++) {
        uint64_t left = filled.words[word];
        for (; left != 0; left &= left - 1) {
            const int cell = 64 * word + ramsis_least_(left);
            lost += counts[cell] * p->aging[(size_t)level * cells + (size_t)cell];
        }
    }
    price = p->price[level];
    aging = (double)lost * RAMSIS_UNIT_ / p->slo_ms;
    for (m = 0; m < p->models; m++) {
        ramsis_line_up_(&line, p, ((size_t)m * (size_t)p->levels + (size_t)level) * cells,
                        &filled, counts);
        for (c = p->padded ? 0 : p->classes - 1; c < p->classes; c++) {
            size_t row = (size_t)m * (size_t)p->places;
            int attempt, again;
            if (p->padded && longest[c] == 0)
                continue;
            if (p->padded)
                row += (size_t)ramsis_place_(p->sizes, p->places, longest[c]);
            for (attempt = 0; attempt < (free_ms < HUGE_VAL ? 2 : 1); attempt++) {
                const double worth = attempt == 0 ? price + aging : price;
                int cut = ramsis_bin_at_(p, p->times_ms[row * (size_t)p->counts]);
                int64_t most = p->counts;
                for (again = 0; again < 2; again++) {
                    const ramsis_candidate_ next =
                        p->padded ? ramsis_padded_(p, &line, row, c, cut, most, worth)
                                  : ramsis_packed_(p, &line, m, cut, most, worth);
                    if (next.count == 0)
                        break;
                    if (p->middle_ms[next.least] >= next.time_ms) {
                        const double cost = price * next.time_ms
                            + aging * (next.time_ms < free_ms ? next.time_ms : free_ms);
                        const double value = (double)next.gain * RAMSIS_UNIT_ - cost;
                        if (value > best) {
                            best = value;
                            model = m;
                            last = c;
                            least = cut;
                            batch.members = next.count;
                            batch.time_ms = next.time_ms;
                        }
                        break;
                    }
                    cut = ramsis_bin_at_(p, next.time_ms);
                    most = next.count;
                }
            }
        }
    }

    /* The oldest requests of each cell. */
    need = batch.members;
    batch.members = 0;
    if (model >= 0) {
        int64_t wanted[RAMSIS_SIZED_CELLS_ + 1] = {0}, total = 0;
        if (model < p->models - 1) /* the last one's line is there */
            ramsis_line_up_(&line, p, ((size_t)model * (size_t)p->levels + (size_t)level) * cells,
                            &filled, counts);
        for (word = 0; word < RAMSIS_SETS_; word++) {
            uint64_t left = line.up_to[last].words[word] & line.from[least].words[word];
            for (; left != 0 && need > 0; left &= left - 1) {
                const int r = 64 * word + ramsis_least_(left);
                wanted[line.cell[r]] = line.count[r] < need ? line.count[r] : need;
                need -= wanted[line.cell[r]];
            }
        }
        for (k = 0; k < waiting; k++) {
            const int asked = wanted[fate[k]] > 0;
            wanted[fate[k]] -= asked;
            if (asked
                && deadline_ms[k] - now_ms + RAMSIS_TOLERANCE_MS_ >= batch.time_ms * slowness) {
                fate[k] = RAMSIS_MEMBER;
                total += size[k];
                batch.members++;
            } else {
                fate[k] = fate[k] == RAMSIS_SIZED_CELLS_ ? RAMSIS_HOPELESS : RAMSIS_WAITS;
            }
        }
        if (!p->padded && batch.members > 0) { /* those that their own total size is late for */
            const double time_ms = ramsis_batch_ms_(p, model, batch.members, total);
            for (k = 0; k < waiting; k++)
                if (fate[k] == RAMSIS_MEMBER
                    && deadline_ms[k] - now_ms + RAMSIS_TOLERANCE_MS_ < time_ms * slowness) {
                    fate[k] = RAMSIS_WAITS;
                    batch.members--;
                }
        }
    } else {
        for (k = 0; k < waiting; k++)
            fate[k] = fate[k] == RAMSIS_SIZED_CELLS_ ? RAMSIS_HOPELESS : RAMSIS_WAITS;
    }
    batch.model = model;
    if (batch.members == 0 && (size_t)batch.dropped < waiting) {
        /* The oldest alone, on the model that is fastest for it. */
        for (k = 0; fate[k] == RAMSIS_HOPELESS; k++)
            continue;
        fate[k] = RAMSIS_MEMBER;
        batch.members = 1;
        batch.time_ms = ramsis_alone_ms_(p, size[k]);
        for (m = p->models - 1; m >= 0; m--)
            if (ramsis_batch_ms_(p, m, 1, size[k]) == batch.time_ms)
                batch.model = m;
    }
    return batch;
}

#endif
