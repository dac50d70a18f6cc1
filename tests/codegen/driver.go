// Puts questions to an exported package: records come on standard input, answers leave on standard
// output. The arguments are labels of arrival processes.
package main

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"os"

	"driver/ramsis"
)

type question struct {
	Op, A, B, C int64
	X, Y        float64
}

type reply struct {
	Kind, Model, Batch, RunAs, Passed int64
	X                                 float64
}

func number(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

func ofError(err error) int64 {
	return -number(err != nil)
}

func ofAnswer(answer ramsis.Answer) reply {
	belowMs := math.Inf(-1)
	if answer.Kind == ramsis.Wait {
		belowMs = answer.WaitBelowMs
	}
	return reply{int64(answer.Kind), int64(answer.Model), int64(answer.Batch),
		int64(answer.RunAs), 0, belowMs}
}

func ofOpinion(opinion ramsis.Opinion, waitMs float64) reply {
	if opinion.Kind != ramsis.Wait {
		waitMs = math.Inf(-1)
	}
	return reply{int64(opinion.Kind), int64(opinion.Model), int64(opinion.Batch),
		int64(opinion.RunAs), int64(opinion.Level), waitMs}
}

// levelIndex is the place of a level in its process.
func levelIndex(level *ramsis.Level) int64 {
	for _, process := range ramsis.Processes {
		for k := range process.Levels {
			if level == &process.Levels[k] {
				return int64(k)
			}
		}
	}
	return -1
}

func policies() []*ramsis.Policy {
	var found []*ramsis.Policy
	for _, process := range ramsis.Processes {
		for _, level := range process.Levels {
			for _, station := range level.Stations {
				found = append(found, station.Policy)
			}
		}
	}
	return found
}

func main() {
	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), bufio.NewWriterSize(os.Stdout, 1<<20)
	defer out.Flush()
	all := policies()
	var watch ramsis.Watch
	var router *ramsis.Router
	var monitor *ramsis.LoadMonitor
	inSystem := make([]int, 64)
	level, slowness := ramsis.PresentLevel, 1.0
	var opinion ramsis.Opinion
	data := make([]byte, 48)
	for {
		if _, err := io.ReadFull(in, data); err == io.EOF {
			return
		} else if err != nil {
			panic(err)
		}
		asked := question{
			int64(binary.LittleEndian.Uint64(data)), int64(binary.LittleEndian.Uint64(data[8:])),
			int64(binary.LittleEndian.Uint64(data[16:])),
			int64(binary.LittleEndian.Uint64(data[24:])),
			math.Float64frombits(binary.LittleEndian.Uint64(data[32:])),
			math.Float64frombits(binary.LittleEndian.Uint64(data[40:])),
		}
		var given reply
		switch asked.Op {
		case 1:
			answer, err := all[asked.A].Lookup(int(asked.B), asked.X, int(asked.C))
			if (err != nil) != (answer.Kind == ramsis.None) {
				panic(err)
			}
			given = ofAnswer(answer)
		case 2:
			label := ""
			if asked.A >= 0 {
				label = os.Args[asked.A+1]
			}
			choice, err := ramsis.Choose(label, asked.X, asked.Y)
			given = reply{Kind: ofError(err), Batch: number(choice.AboveHighest),
				Passed: number(watch.Passed(choice))}
			if err == nil {
				given.Model, given.X = levelIndex(choice.Level), choice.Slowness
			}
		case 3:
			level := &ramsis.Processes[0].Levels[asked.A]
			station, err := level.Route(asked.X, asked.Y)
			given.Kind = ofError(err)
			for k := range level.Stations {
				if station == &level.Stations[k] {
					given = reply{Kind: int64(k), Batch: int64(station.Workers)}
				}
			}
		case 4:
			router = ramsis.NewRouter(ramsis.Dispatch(asked.A), int(asked.B))
		case 5:
			inSystem[asked.A] = int(asked.B)
		case 6:
			given.Kind = int64(router.Join(inSystem))
		case 7:
			made, err := ramsis.NewLoadMonitor(asked.X)
			monitor, given.Kind = made, ofError(err)
		case 8:
			given.Kind = ofError(monitor.Record(asked.X, int(asked.A)))
		case 9:
			load, err := monitor.LoadQPS(asked.X)
			given.Kind, given.X = ofError(err), load
		case 11:
			answer, _ := all[asked.A].LookupSlow(asked.Y, int(asked.B), asked.X, int(asked.C))
			given = ofAnswer(answer)
		case 12:
			level, slowness = int(asked.A), asked.X
		case 13:
			policy := all[asked.A]
			var err error
			if slowness == 1 {
				opinion, err = policy.OpinionLookup(int(asked.B), asked.X, int(asked.C), asked.Y,
					level)
			} else {
				opinion, err = policy.OpinionLookupSlow(slowness, int(asked.B), asked.X,
					int(asked.C), asked.Y, level)
			}
			if (err != nil) != (opinion.Kind == ramsis.None) {
				panic(err)
			}
			given = ofOpinion(opinion, opinion.WaitFreshMs)
		case 14:
			given = ofOpinion(opinion, opinion.WaitUnsureMs)
		case 15:
			given.Kind = int64(all[asked.A].OpinionLevel(int(asked.B), int(asked.C)))
		case 16:
			given.Kind = number(all[asked.A].Unsure(int(asked.B), int(asked.C), asked.X))
		case 10:
			given.Kind = -1
			if asked.A >= 0 && asked.A < int64(len(ramsis.ModelNames)) {
				given.Kind = int64(ramsis.ModelNames[asked.A][asked.B])
			}
		}
		for k, value := range []int64{given.Kind, given.Model, given.Batch, given.RunAs,
			given.Passed, int64(math.Float64bits(given.X))} {
			binary.LittleEndian.PutUint64(data[8*k:], uint64(value))
		}
		if _, err := out.Write(data); err != nil {
			panic(err)
		}
	}
}
