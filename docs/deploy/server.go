package main

import (
	"fmt"
	"log"

	"example/ramsis"
)

func main() {
	deadlinesMs := []float64{1000.2, 1004, 1012, 1013, 1013, 1014, 1020}
	nowMs, idle := 0.0, 4
	monitor, err := ramsis.NewLoadMonitor(ramsis.WindowMs)
	if err != nil {
		log.Fatal(err)
	}
	for ; nowMs < 1000; nowMs += 2 {
		if err := monitor.Record(nowMs, 1); err != nil {
			log.Fatal(err)
		}
	}
	loadQPS, err := monitor.LoadQPS(nowMs)
	if err != nil {
		log.Fatal(err)
	}
	choice, err := ramsis.Choose("", loadQPS, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%g queries/s: level of %g\n", loadQPS, choice.Level.LoadQPS)

	policy := choice.Level.Stations[0].Policy
	for len(deadlinesMs) > 0 {
		slackMs := deadlinesMs[0] - nowMs
		answer, err := policy.Lookup(len(deadlinesMs), slackMs, idle)
		if err != nil {
			log.Fatal(err)
		}
		switch answer.Kind {
		case ramsis.Run:
			fmt.Printf("slack %.3g: run %d as %d on %s\n", slackMs, answer.Batch, answer.RunAs,
				ramsis.ModelNames[answer.Model])
			deadlinesMs = deadlinesMs[answer.Batch:]
			idle--
		case ramsis.Drop:
			fmt.Printf("slack %.3g: drop\n", slackMs)
			deadlinesMs = deadlinesMs[1:]
		case ramsis.Wait:
			fmt.Printf("slack %.3g, %d idle: wait\n", slackMs, idle)
			return
		}
	}
}
