// An upstream that OpenTelemetry's own SDK instruments, for tests of Silverback: it continues the trace of each request with
// the span of its handler and one below it, and sends both to the collector whose address is its argument (OTLP over gRPC).
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: upstream COLLECTOR")
	}
	exporter, err := otlptracegrpc.New(context.Background(), otlptracegrpc.WithEndpoint(os.Args[1]), otlptracegrpc.WithInsecure())
	if err != nil {
		log.Fatal(err)
	}
	provider := trace.NewTracerProvider(
		trace.WithSyncer(exporter),
		trace.WithResource(resource.NewSchemaless(attribute.String("service.name", "stock"))),
	)
	tracer := provider.Tracer("upstream")
	serve := func(response http.ResponseWriter, request *http.Request) {
		_, span := tracer.Start(request.Context(), "look up")
		defer span.End()
		fmt.Fprintln(response, "three")
	}
	handler := otelhttp.NewHandler(http.HandlerFunc(serve), "serve",
		otelhttp.WithTracerProvider(provider),
		otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithSpanNameFormatter(func(operation string, _ *http.Request) string { return operation }),
	)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintln(os.Stderr, "listening on", listener.Addr())
	log.Fatal(http.Serve(listener, handler))
}
