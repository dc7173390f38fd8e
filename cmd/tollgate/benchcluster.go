package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tollgate-proxy/tollgate/pipeline/tripcount"
)

const (
	// clusterMasters is how many masters a cluster has at least.
	clusterMasters = 3
	// clusterSlots is how many slots they share.
	clusterSlots = 16384
	// clusterTimeout bounds the wait for the masters to agree; they need about two seconds.
	clusterTimeout = 30 * time.Second
	// portAttempts bounds how often other ports are tried when somebody took one meanwhile.
	portAttempts = 5
)

// benchCluster is a Redis Cluster to measure on, of three masters without replicas.
type benchCluster struct {
	nodes []*benchNode
}

// benchNode is one master, and the proxy whose port it announces.
type benchNode struct {
	proxy  *tripcount.Proxy
	client *redis.Client // past the proxy
	cmd    *exec.Cmd
	dir    string
	ports  [2]int // for clients, for the other masters
}

// startBenchCluster starts a cluster by redis-servers found on PATH. Stop ends it.
func startBenchCluster(ctx context.Context) (*benchCluster, error) {
	binary, err := benchBinary()
	if err != nil {
		return nil, err
	}
	c := &benchCluster{}
	for range clusterMasters {
		n := &benchNode{}
		c.nodes = append(c.nodes, n)
		if err := n.start(ctx, binary); err != nil {
			c.stop()
			return nil, err
		}
	}
	if err := c.join(ctx); err != nil {
		c.stop()
		return nil, fmt.Errorf("make a redis cluster: %w", err)
	}
	return c, nil
}

// proxies are those before the masters.
func (c *benchCluster) proxies() []*tripcount.Proxy {
	var list []*tripcount.Proxy
	for _, n := range c.nodes {
		list = append(list, n.proxy)
	}
	return list
}

func (c *benchCluster) stop() {
	for _, n := range c.nodes {
		n.stop()
	}
}

// start starts the master behind a proxy.
func (n *benchNode) start(ctx context.Context, binary string) (err error) {
	if n.proxy, err = tripcount.New("127.0.0.1:0"); err != nil { // redirected once the port is known
		return err
	}
	if n.dir, err = os.MkdirTemp("", "tollgate-"); err != nil {
		return fmt.Errorf("directory for redis: %w", err)
	}
	for range portAttempts {
		if err = n.try(ctx, binary); err == nil {
			return nil
		}
		n.end()
	}
	return err
}

// try starts the master on ports that are free just now.
func (n *benchNode) try(ctx context.Context, binary string) (err error) {
	if n.ports, err = freePorts(); err != nil {
		return err
	}
	_, announced, err := net.SplitHostPort(n.proxy.Addr())
	if err != nil {
		return err
	}
	port, bus := strconv.Itoa(n.ports[0]), strconv.Itoa(n.ports[1])
	n.cmd = exec.CommandContext(ctx, binary, "--bind", "127.0.0.1", "--port", port, "--cluster-enabled", "yes", "--cluster-port", bus,
		"--cluster-announce-port", announced, "--cluster-announce-bus-port", bus, "--save", "", "--appendonly", "no", "--dir", n.dir)
	if err := n.cmd.Start(); err != nil {
		n.cmd = nil
		return fmt.Errorf("start redis-server: %w", err)
	}
	address := net.JoinHostPort("127.0.0.1", port)
	n.client = redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1})
	for range 200 {
		var info string
		if info, err = n.client.Info(ctx, "server").Result(); err == nil {
			if !strings.Contains(info, "process_id:"+strconv.Itoa(n.cmd.Process.Pid)+"\r\n") {
				return errors.New("another server has taken the port of redis-server")
			}
			n.proxy.Redirect(address)
			return nil
		}
		time.Sleep(25 * time.Millisecond)
	}
	return fmt.Errorf("redis-server did not come up within 5 s: %w", err)
}

// end ends the process, and what is connected to it.
func (n *benchNode) end() {
	if n.client != nil {
		_ = n.client.Close()
		n.client = nil
	}
	if n.cmd != nil {
		_ = n.cmd.Process.Kill()
		_ = n.cmd.Wait()
		n.cmd = nil
	}
	_ = os.Remove(filepath.Join(n.dir, "nodes.conf")) // or the next try would be the same node
}

func (n *benchNode) stop() {
	if n.proxy != nil {
		n.proxy.Close()
	}
	n.end()
	if n.dir != "" {
		_ = os.RemoveAll(n.dir)
	}
}

// freePorts are two that nobody listens on.
func freePorts() (ports [2]int, err error) {
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return ports, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // held until both are found: they differ
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return ports, err
		}
		if ports[i], err = strconv.Atoi(port); err != nil {
			return ports, err
		}
	}
	return ports, nil
}

// join makes one cluster of the masters, and returns when each of them serves and knows all.
func (c *benchCluster) join(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	for i, n := range c.nodes {
		first, last := clusterSlots*i/len(c.nodes), clusterSlots*(i+1)/len(c.nodes)-1
		if err := n.client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return err
		}
		if err := n.client.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", first, last).Err(); err != nil {
			return err
		}
		if i == 0 {
			continue
		}
		to := c.nodes[0].ports
		if err := n.client.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", to[0], to[1]).Err(); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		for {
			err := n.serves(ctx, len(c.nodes))
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(25 * time.Millisecond):
			}
		}
	}
	return nil
}

// serves says why a master does not yet serve in a cluster of so many.
func (n *benchNode) serves(ctx context.Context, masters int) error {
	info, err := n.client.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	for _, want := range []string{"cluster_state:ok\r\n", fmt.Sprintf("cluster_size:%d\r\n", masters)} {
		if !strings.Contains(info, want) {
			return fmt.Errorf("not %q in:\n%s", want, info)
		}
	}
	return nil
}
