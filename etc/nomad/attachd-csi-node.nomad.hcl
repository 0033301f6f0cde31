# The Node service for Nomad, on each client; doc/source/admin/nomad.rst describes it.
#
# attachd-agent runs on the clients as a unit of systemd, and Docker permits privileged containers:
# plugin "docker" { config { allow_privileged = true } } in the configuration of the client.

variable "image" {
  type        = string
  default     = "registry.example.org/attachd-host:0.1.0"
  description = "Made of etc/container/host.Containerfile."
}

variable "data_dir" {
  type        = string
  default     = "/opt/nomad/data"
  description = "data_dir of the Nomad clients."
}

job "attachd-csi-node" {
  datacenters = ["*"]
  # One on each client, of higher priority than the jobs that use volumes.
  type     = "system"
  priority = 90

  group "node" {
    task "attachd-csi" {
      driver = "docker"

      csi_plugin {
        id        = "attachd"
        type      = "node"
        mount_dir = "/csi"
        # The same path as on the host, so that the agent names it as the host does.
        stage_publish_base_dir = "${var.data_dir}/client/csi/node/attachd"
        health_timeout         = "1m"
      }

      config {
        image   = var.image
        command = "attachd-csi"
        args = [
          "--endpoint=unix:///csi/csi.sock",
          "--mode=node",
          "--agent-socket=/run/attachd/agent.sock",
          "--directory=${var.data_dir}/client/csi/node/attachd",
        ]
        privileged   = true
        network_mode = "host"
        # The users of a device are found among all processes of the host.
        pid_mode = "host"

        mount {
          type   = "bind"
          source = "/dev"
          target = "/dev"
        }
        mount {
          type   = "bind"
          source = "/run/attachd"
          target = "/run/attachd"
          # With what the agent mounts there later.
          bind_options {
            propagation = "rslave"
          }
        }
        mount {
          type   = "bind"
          source = "/var/lib/attachd"
          target = "/var/lib/attachd"
        }
        mount {
          type   = "bind"
          source = "/run/udev"
          target = "/run/udev"
        }
      }

      kill_timeout = "30s"

      resources {
        cpu    = 100
        memory = 256
        # For a file system that is made on a large device.
        memory_max = 1024
      }
    }
  }
}
