// etcd of the release that this Kubernetes is tested with; distributions carry older ones.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
