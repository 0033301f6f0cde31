# A job that uses the volume of volume.hcl.
job "writer" {
  datacenters = ["*"]

  group "writer" {
    volume "data" {
      type            = "csi"
      source          = "data"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
    }

    task "writer" {
      driver = "docker"

      config {
        image   = "docker.io/library/busybox:1.37"
        command = "sh"
        args    = ["-c", "date >> /data/log && sleep infinity"]
      }

      volume_mount {
        volume      = "data"
        destination = "/data"
      }
    }
  }
}
