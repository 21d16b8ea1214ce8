// Command opencost is upstream's cost model with two differences, which upstream has no option for: it listens on the
// loopback device alone, and it reads Prometheus 3 correctly.
package main

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strconv"

	"github.com/opencost/opencost/pkg/cmd"
	upstream "github.com/opencost/opencost/pkg/cmd/costmodel"
	"github.com/opencost/opencost/pkg/costmodel"
	"github.com/opencost/opencost/pkg/env"
	"github.com/opencost/opencost/pkg/errors"
	"github.com/opencost/opencost/pkg/log"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
)

const loopback = "127.0.0.1"

// A subquery's range and step: [3h:1m].
var subquery = regexp.MustCompile(`\[(\d+[smhd])(:\d+[smhd]\])`)

func main() {
	command := &cobra.Command{
		Use: cmd.CommandCostModel,
		RunE: func(*cobra.Command, []string) error {
			log.InitLogging(true)
			return serve()
		},
	}
	if err := cmd.Execute(command); err != nil {
		os.Exit(1)
	}
}

func serve() error {
	prometheus, err := closedRanges(env.GetPrometheusServerEndpoint())
	if err != nil {
		return err
	}
	if err := os.Setenv(env.PrometheusServerEndpointEnvVar, prometheus); err != nil {
		return err
	}
	model := costmodel.Initialize()
	model.Router.GET("/healthz", upstream.Healthz)
	// Only what is asked here: upstream's other paths show the whole cluster, and some change settings.
	served := http.NewServeMux()
	for _, path := range []string{"/healthz", "/allocation/compute"} {
		served.Handle(path, model.Router)
	}
	served.Handle("/metrics", promhttp.Handler())
	address := net.JoinHostPort(loopback, strconv.Itoa(env.GetAPIPort()))
	return http.ListenAndServe(address, errors.PanicHandlerMiddleware(served))
}

// closedRanges returns the address of a proxy to a Prometheus that gives ranges their first moment back.
//
// Since Prometheus 3 a range leaves its first moment out. This version of OpenCost takes the distance between a range's
// first and last point for the time that a pod or node was there, so each window would come out a step too short
// (upstream: pull request 3094). A range that begins a millisecond earlier holds the moment again.
func closedRanges(address string) (string, error) {
	target, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return "", err
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(request *httputil.ProxyRequest) {
		request.SetURL(target)
		asked := request.In.URL.Query()
		if query := asked.Get("query"); query != "" {
			asked.Set("query", subquery.ReplaceAllString(query, "[${1}1ms${2}"))
			request.Out.URL.RawQuery = asked.Encode()
		}
	}}
	go func() {
		log.Errorf("the proxy to Prometheus ended: %s", http.Serve(listener, proxy))
		os.Exit(1)
	}()
	return "http://" + listener.Addr().String(), nil
}
