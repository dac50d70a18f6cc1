/* Puts questions to an exported header: records come on standard input, answers leave on standard
 * output. The arguments are labels of arrival processes. Compiled as C99 and as C++11. */
#include <stdio.h>
#include <stdlib.h>

#include "policies.h"

typedef struct {
    int64_t op, a, b, c;
    double x, y;
} question;

typedef struct {
    int64_t kind, model, batch, run_as, passed;
    double x;
} reply;

enum { MOST = 64 };

static reply of_answer(ramsis_answer answer)
{
    reply given;
    given.kind = answer.kind;
    given.model = answer.model;
    given.batch = answer.batch;
    given.run_as = answer.run_as;
    given.passed = 0;
    given.x = answer.wait_below_ms;
    return given;
}

/* With one of the slacks that end a wait. */
static reply of_opinion(ramsis_opinion opinion, double wait_ms)
{
    reply given;
    given.kind = opinion.kind;
    given.model = opinion.model;
    given.batch = opinion.batch;
    given.run_as = opinion.run_as;
    given.passed = opinion.level;
    given.x = wait_ms;
    return given;
}

int main(int argc, char **argv)
{
    ramsis_watch watch;
    ramsis_router router;
    ramsis_monitor monitor;
    ramsis_arrivals *cells = NULL;
    uint64_t joined[MOST];
    int64_t in_system[MOST];
    question asked;
    int64_t level = RAMSIS_PRESENT_LEVEL;
    double slowness = 1;
    ramsis_opinion opinion;

    memset(&opinion, 0, sizeof opinion);
    memset(&watch, 0, sizeof watch);
    memset(&router, 0, sizeof router);
    memset(&monitor, 0, sizeof monitor);
    memset(in_system, 0, sizeof in_system);
    while (fread(&asked, sizeof asked, 1, stdin) == 1) {
        reply given;
        memset(&given, 0, sizeof given);
        switch (asked.op) {
        case 1:
            given = of_answer(ramsis_lookup(&ramsis_policies[asked.a], asked.b, asked.x,
                                            asked.c));
            break;
        case 2: {
            const char *label = asked.a < 0 || asked.a + 1 >= argc ? NULL : argv[asked.a + 1];
            const ramsis_choice choice = ramsis_choose(label, asked.x, asked.y);
            given.kind = choice.level == NULL ? -1 : 0;
            given.batch = choice.above_highest;
            given.passed = ramsis_passed(&watch, choice);
            if (choice.level != NULL) { /* which level it is, and what slack is divided by */
                given.model = (int64_t)(choice.level - ramsis_processes[choice.process].levels);
                given.x = choice.slowness;
            }
            break;
        }
        case 3: {
            const ramsis_level *level = &ramsis_processes[0].levels[asked.a];
            const ramsis_station *station = ramsis_route(level, asked.x, asked.y);
            given.kind = station == NULL ? -1 : (int64_t)(station - level->stations);
            given.batch = station == NULL ? 0 : station->workers;
            given.model = station == NULL ? 0 : (int64_t)(station->policy - ramsis_policies);
            break;
        }
        case 4:
            ramsis_router_init(&router, (ramsis_dispatch)asked.a, (size_t)asked.b, joined);
            break;
        case 5:
            in_system[asked.a] = asked.b;
            break;
        case 6:
            given.kind = (int64_t)ramsis_join(&router, in_system);
            break;
        case 7:
            free(cells);
            cells = (ramsis_arrivals *)calloc((size_t)asked.a, sizeof *cells);
            given.kind = ramsis_monitor_init(&monitor, asked.x, cells, (size_t)asked.a);
            break;
        case 8:
            given.kind = ramsis_record(&monitor, asked.x, asked.a);
            break;
        case 9:
            given.kind = ramsis_load(&monitor, asked.x, &given.x);
            break;
        case 11:
            given = of_answer(ramsis_lookup_slow(&ramsis_policies[asked.a], asked.y, asked.b,
                                                 asked.x, asked.c));
            break;
        case 12: /* of the lookups of second opinions that follow */
            level = asked.a;
            slowness = asked.x;
            break;
        case 13:
            opinion = slowness == 1
                          ? ramsis_opinion_lookup(&ramsis_policies[asked.a], asked.b, asked.x,
                                                  asked.c, asked.y, level)
                          : ramsis_opinion_lookup_slow(&ramsis_policies[asked.a], slowness, asked.b,
                                                       asked.x, asked.c, asked.y, level);
            given = of_opinion(opinion, opinion.wait_fresh_ms);
            break;
        case 14:
            given = of_opinion(opinion, opinion.wait_unsure_ms);
            break;
        case 15:
            given.kind = ramsis_opinion_level(&ramsis_policies[asked.a], asked.b, asked.c);
            break;
        case 16:
            given.kind = ramsis_unsure(&ramsis_policies[asked.a], asked.b, (int)asked.c, asked.x);
            break;
        case 10: /* bytes of a name of a model */
            given.kind = ramsis_model_name((int)asked.a) == NULL
                             ? -1 : (unsigned char)ramsis_model_name((int)asked.a)[asked.b];
            break;
        }
        if (fwrite(&given, sizeof given, 1, stdout) != 1)
            return 1;
    }
    free(cells);
    return 0;
}
