// decK, as its own module builds it but for the version of go-kong (see go.mod).
package main

import (
	"context"

	"github.com/kong/deck/cmd"
)

func main() {
	cmd.Execute(context.Background())
}
