/* Puts questions to an exported header of policies for requests with a size: records come on
 * standard input, answers leave on standard output. With an argument, prints the median of the
 * nanoseconds that the questions take instead. Compiled as C99 and as C++11. */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "policies.h"

enum { MOST = 4096, ROUNDS = 20, REPEATS = 50 };

static double deadline_ms[MOST], taken_ns[MOST];
static int64_t size[MOST];
static uint16_t fate[MOST];

/* Policy by place, requests, time, time until another worker is free, and slowness. */
typedef struct {
    int64_t policy, waiting;
    double now_ms, free_ms, slowness;
} question;

static ramsis_batch answer(const question *asked)
{
    return ramsis_next_batch(&ramsis_sized_policies[asked->policy], deadline_ms, size, fate,
                             (size_t)asked->waiting, asked->now_ms, asked->free_ms,
                             asked->slowness);
}

/* The nanoseconds of an answer, the least of several rounds. */
static double nanoseconds(const question *asked)
{
    double best = 1e18;
    int round, k;
    for (round = 0; round < ROUNDS; round++) {
        struct timespec begin, end;
        int64_t members = 0;
        double ns;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (k = 0; k < REPEATS; k++) {
            question next = *asked;
            next.waiting -= members < 0; /* the next question waits for this answer */
            members += answer(&next).members;
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        ns = 1e9 * (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec);
        best = ns / REPEATS < best ? ns / REPEATS : best;
    }
    return best;
}

static int rising(const void *first, const void *second)
{
    const double a = *(const double *)first, b = *(const double *)second;
    return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
    question asked;
    size_t n = 0;
    (void)argv;
    while (fread(&asked, sizeof asked, 1, stdin) == 1) {
        const size_t waiting = (size_t)asked.waiting;
        if (fread(deadline_ms, sizeof *deadline_ms, waiting, stdin) != waiting
            || fread(size, sizeof *size, waiting, stdin) != waiting)
            return 1;
        if (argc > 1 && n < MOST) {
            taken_ns[n++] = nanoseconds(&asked);
        } else {
            const ramsis_batch batch = answer(&asked);
            const int64_t counts[3] = {batch.model, batch.members, batch.dropped};
            if (fwrite(counts, sizeof *counts, 3, stdout) != 3
                || fwrite(&batch.time_ms, sizeof batch.time_ms, 1, stdout) != 1
                || fwrite(fate, sizeof *fate, waiting, stdout) != waiting)
                return 1;
        }
    }
    if (n > 0) {
        qsort(taken_ns, n, sizeof *taken_ns, rising);
        printf("%.0f\n", taken_ns[n / 2]);
    }
    return ramsis_sized_for(0) == ramsis_sized_policies ? 0 : 2;
}
