// Puts questions to an exported package of policies for requests with a size, as sized_driver.c.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sort"
	"time"

	"driver/ramsis"
)

type question struct {
	Policy, Waiting         int64
	NowMs, FreeMs, Slowness float64
}

// read reads a value, and says whether there was one.
func read(in io.Reader, into any) bool {
	err := binary.Read(in, binary.LittleEndian, into)
	if err != nil && !errors.Is(err, io.EOF) {
		panic(err)
	}
	return err == nil
}

// nanoseconds is the time of a decision, the least of several rounds.
func nanoseconds(decide func() (ramsis.Batch, error)) float64 {
	best := math.Inf(1)
	for round := 0; round < 5; round++ {
		begin := time.Now()
		for k := 0; k < 200; k++ {
			if _, err := decide(); err != nil {
				panic(err)
			}
		}
		best = math.Min(best, float64(time.Since(begin).Nanoseconds())/200)
	}
	return best
}

func main() {
	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), bufio.NewWriterSize(os.Stdout, 1<<20)
	defer out.Flush()
	var asked question
	var takenNs []float64
	for read(in, &asked) {
		deadlineMs, sizes := make([]float64, asked.Waiting), make([]int64, asked.Waiting)
		read(in, deadlineMs)
		read(in, sizes)
		size, fate := make([]int, len(sizes)), make([]ramsis.Fate, len(sizes))
		for k, one := range sizes {
			size[k] = int(one)
		}
		// Policy k is that of the load k + 1.
		decide := func() (ramsis.Batch, error) {
			return ramsis.For(float64(asked.Policy+1)).NextBatch(
				deadlineMs, size, fate, asked.NowMs, asked.FreeMs, asked.Slowness)
		}
		if len(os.Args) > 1 {
			takenNs = append(takenNs, nanoseconds(decide))
			continue
		}
		batch, err := decide()
		model := int64(batch.Model)
		if err != nil {
			model = -2
		}
		binary.Write(out, binary.LittleEndian,
			[]int64{model, int64(batch.Members), int64(batch.Dropped)})
		binary.Write(out, binary.LittleEndian, batch.TimeMs)
		for _, one := range fate {
			binary.Write(out, binary.LittleEndian, uint16(one))
		}
	}
	if len(takenNs) > 0 {
		sort.Float64s(takenNs)
		fmt.Fprintf(out, "%.0f\n", takenNs[len(takenNs)/2])
	}
}
