# The Controller service for Nomad; doc/source/admin/nomad.rst describes it.
#
#   nomad var put nomad/jobs/attachd-csi-controller clouds_yaml=@clouds.yaml
#   nomad job run etc/nomad/attachd-csi-controller.nomad.hcl

variable "image" {
  type        = string
  default     = "registry.example.org/attachd-host:0.1.0"
  description = "Made of etc/container/host.Containerfile."
}

job "attachd-csi-controller" {
  datacenters = ["*"]
  type        = "service"

  group "controller" {
    # Any number may run at the same time.
    count = 2

    constraint {
      distinct_hosts = true
    }

    update {
      max_parallel = 1
    }

    task "attachd-csi" {
      driver = "docker"

      # Only root can write to the folder of the socket, and Nomad reads there as root.
      csi_plugin {
        id             = "attachd"
        type           = "controller"
        mount_dir      = "/csi"
        health_timeout = "1m"
      }

      config {
        image   = var.image
        command = "attachd-csi"
        args = [
          "--endpoint=unix:///csi/csi.sock",
          "--mode=controller",
          "--fence=proved",
        ]
        cap_drop        = ["all"]
        readonly_rootfs = true
      }

      env {
        OS_CLIENT_CONFIG_FILE = "${NOMAD_SECRETS_DIR}/clouds.yaml"
        OS_CLOUD              = "attachd"
      }

      template {
        destination = "${NOMAD_SECRETS_DIR}/clouds.yaml"
        data        = "{{ with nomadVar \"nomad/jobs/attachd-csi-controller\" }}{{ .clouds_yaml }}{{ end }}"
        perms       = "0400"
      }

      # Calls in progress have 20 s to end.
      kill_timeout = "30s"

      resources {
        cpu    = 100
        memory = 256
      }
    }
  }
}
