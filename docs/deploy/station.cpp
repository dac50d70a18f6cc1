#include <cstdio>
#include <map>
#include <vector>
#include "policies.h"

class Station {
public:
    Station() : cells_(4096) {
        ramsis_monitor_init(&monitor_, 500, cells_.data(), (int64_t)cells_.size());
    }
    void arrive(double now_ms, int id, double deadline_ms) {
        ramsis_record(&monitor_, now_ms, 1);
        queue_.emplace(deadline_ms, id);
        serve(now_ms);
    }
    void finished(double now_ms) {
        ++idle_;
        serve(now_ms);
    }

private:
    void serve(double now_ms) {
        double load_qps = 0;
        ramsis_load(&monitor_, now_ms, &load_qps);
        const ramsis_choice choice = ramsis_choose(NULL, load_qps, 1);
        const ramsis_policy *policy = choice.level->stations[0].policy;
        while (!queue_.empty() && idle_ > 0) {
            const double slack_ms = queue_.begin()->first - now_ms;
            const ramsis_answer answer =
                ramsis_lookup(policy, (int64_t)queue_.size(), slack_ms, idle_);
            if (answer.kind == RAMSIS_RUN) {
                std::printf("%g ms: %s runs", now_ms, ramsis_model_name(answer.model));
                for (int i = 0; i < (int)answer.batch; ++i) take(" %d");
                std::printf("\n");
                --idle_;
            } else if (answer.kind == RAMSIS_DROP) {
                std::printf("%g ms: too late for", now_ms);
                take(" %d\n");
            } else {
                return;  // wait: ask again at the next event
            }
        }
    }
    void take(const char *form) {
        std::printf(form, queue_.begin()->second);
        queue_.erase(queue_.begin());
    }

    ramsis_monitor monitor_;
    std::vector<ramsis_arrivals> cells_;
    std::multimap<double, int> queue_;  // by deadline: the earliest first
    int64_t idle_ = 2;
};

int main() {
    Station station;
    station.arrive(0, 1, 25);
    station.arrive(1, 2, 26);
    station.arrive(2, 3, 27);
    station.arrive(3, 4, 12);
    station.finished(9);
    station.finished(14);
}
