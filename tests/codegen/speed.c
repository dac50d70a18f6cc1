/* Nanoseconds of a lookup, and of one with second opinions: the best of several rounds over random
 * questions to all policies that have them; 0 where none has. */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <time.h>

#include "policies.h"

enum { QUESTIONS = 1 << 14, ROUNDS = 200 };

static int64_t unsure[QUESTIONS];
static double unsure_slack_ms[QUESTIONS];

/* The same with second opinions; questions are counts of fresh and unsure requests. */
static double of_opinions(const int64_t *fresh, const double *slack_ms)
{
    static const ramsis_policy *asked[QUESTIONS];
    const size_t policies = sizeof ramsis_policies / sizeof *ramsis_policies;
    size_t p, with = 0;
    int64_t sum = 0;
    double best = 1e9;
    int round, k;

    for (p = 0; p < policies; p++)
        if (ramsis_policies[p].cascade != NULL)
            asked[with++] = &ramsis_policies[p];
    for (round = 0; with > 0 && round < ROUNDS; round++) {
        struct timespec begin, end;
        double ns;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (k = 0; k < QUESTIONS; k++) {
            const ramsis_opinion opinion = ramsis_opinion_lookup(
                asked[(size_t)k % with], fresh[k], slack_ms[k], unsure[k] + (sum < 0),
                unsure_slack_ms[k], RAMSIS_PRESENT_LEVEL);
            sum += opinion.batch + opinion.model;
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        ns = 1e9 * (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec);
        best = ns / QUESTIONS < best ? ns / QUESTIONS : best;
    }
    return with > 0 && sum >= 0 ? best : 0;
}

int main(void)
{
    static int64_t queued[QUESTIONS], idle[QUESTIONS];
    static double slack_ms[QUESTIONS];
    const size_t policies = sizeof ramsis_policies / sizeof *ramsis_policies;
    uint64_t state = 1;
    int64_t sum = 0;
    double best = 1e9;
    int round, k;

    for (k = 0; k < QUESTIONS; k++) {
        const ramsis_policy *policy = &ramsis_policies[(size_t)k % policies];
        state = state * UINT64_C(6364136223846793005) + 1;
        queued[k] = 1 + (int64_t)((state >> 33)
                                  % (uint64_t)policy->queued[policy->queue_levels - 1]);
        idle[k] = 1 + (int64_t)((state >> 20) % (uint64_t)policy->idle[policy->idle_levels - 1]);
        slack_ms[k] = policy->slo_ms * (double)(state >> 40) / 16777216.0;
        unsure[k] = (int64_t)((state >> 45) % UINT64_C(8));
        unsure_slack_ms[k] = policy->slo_ms * (double)((state >> 30) % 4096) / 4096.0;
    }
    for (round = 0; round < ROUNDS; round++) {
        struct timespec begin, end;
        double ns;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (k = 0; k < QUESTIONS; k++) {
            /* The next question waits for this answer, as in a server. */
            const ramsis_answer answer = ramsis_lookup(
                &ramsis_policies[(size_t)k % policies], queued[k], slack_ms[k],
                idle[k] + (sum < 0));
            sum += answer.batch + answer.model;
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        ns = 1e9 * (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec);
        best = ns / QUESTIONS < best ? ns / QUESTIONS : best;
    }
    printf("%.1f %.1f\n", best, of_opinions(queued, slack_ms));
    return sum < 0;
}
