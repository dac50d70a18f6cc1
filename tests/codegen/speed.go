// Nanoseconds of a lookup, and of one with second opinions: the best of several rounds over random
// questions to all policies that have them; infinite where none has.
package main

import (
	"fmt"
	"math"
	"math/rand"
	"time"

	"driver/ramsis"
)

const (
	questions = 1 << 14
	rounds    = 200
)

func main() {
	var policies []*ramsis.Policy
	for _, process := range ramsis.Processes {
		for _, level := range process.Levels {
			for _, station := range level.Stations {
				policies = append(policies, station.Policy)
			}
		}
	}
	random := rand.New(rand.NewSource(1))
	queued, idle := make([]int, questions), make([]int, questions)
	slackMs := make([]float64, questions)
	for k := range queued {
		policy := policies[k%len(policies)]
		queued[k], idle[k] = 1+random.Intn(8), 1+random.Intn(policy.Workers)
		slackMs[k] = policy.SloMs * random.Float64()
	}
	best, sum := math.Inf(1), 0
	for round := 0; round < rounds; round++ {
		begin := time.Now()
		for k := range queued {
			// The next question waits for this answer, as in a server.
			more := 0
			if sum < 0 {
				more = 1
			}
			answer, err := policies[k%len(policies)].Lookup(queued[k], slackMs[k], idle[k]+more)
			if err != nil {
				panic(err)
			}
			sum += answer.Batch + answer.Model
		}
		best = math.Min(best, float64(time.Since(begin).Nanoseconds())/questions)
	}
	var with []*ramsis.Policy
	for _, policy := range policies {
		if policy.HasOpinions() {
			with = append(with, policy)
		}
	}
	ofOpinions := math.Inf(1)
	for round := 0; len(with) > 0 && round < rounds; round++ {
		begin := time.Now()
		for k := range queued {
			opinion, err := with[k%len(with)].OpinionLookup(queued[k], slackMs[k], idle[k]&7,
				slackMs[(k+1)%questions], ramsis.PresentLevel)
			if err != nil {
				panic(err)
			}
			sum += opinion.Batch + opinion.Model
		}
		ofOpinions = math.Min(ofOpinions, float64(time.Since(begin).Nanoseconds())/questions)
	}
	fmt.Printf("%.1f %.1f\n", best, ofOpinions)
}
